package simulate

import (
	"github.com/sluice-ratelimit/sluice/internal/heap"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// An eventQueue has events in order of time, and those of the same time in the order in which they
// were added.
type eventQueue struct {
	heap  heap.Heap[event]
	added uint64
}

type event struct {
	at     limiter.Time
	number uint64
	run    func(now limiter.Time)
}

// Less implements [heap.Element].
func (e event) Less(other event) bool {
	return e.at < other.at || e.at == other.at && e.number < other.number
}

// SetIndex implements [heap.Element]. Events are not moved.
func (event) SetIndex(int) {}

// add adds an event at a time.
func (q *eventQueue) add(at limiter.Time, run func(now limiter.Time)) {
	q.added++
	q.heap.Push(event{at, q.added, run})
}

// runUntil runs the events until a time.
func (q *eventQueue) runUntil(at limiter.Time) {
	for len(q.heap) > 0 && q.heap[0].at <= at {
		e := q.heap[0]
		q.heap.Remove(0)
		e.run(e.at)
	}
}
