package simulate

import (
	"container/heap"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// An eventQueue has events in order of time, and those of the same time in the order in which they
// were added.
type eventQueue struct {
	heap  eventHeap
	added uint64
}

// add adds an event at a time.
func (q *eventQueue) add(at limiter.Time, run func(now limiter.Time)) {
	q.added++
	heap.Push(&q.heap, event{at, q.added, run})
}

// runUntil runs the events until a time.
func (q *eventQueue) runUntil(at limiter.Time) {
	for len(q.heap) > 0 && q.heap[0].at <= at {
		e := heap.Pop(&q.heap).(event) //nolint:forcetypeassert // nothing else is pushed
		e.run(e.at)
	}
}

type event struct {
	at     limiter.Time
	number uint64
	run    func(now limiter.Time)
}

type eventHeap []event

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (h *eventHeap) Len() int { return len(*h) }

func (h *eventHeap) Less(i, j int) bool {
	a, b := &(*h)[i], &(*h)[j]
	return a.at < b.at || a.at == b.at && a.number < b.number
}
func (h *eventHeap) Swap(i, j int) { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }

// Push adds an event.
func (h *eventHeap) Push(e any) { *h = append(*h, e.(event)) } //nolint:forcetypeassert // nothing else is pushed

// Pop removes the last event.
func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = event{}
	*h = (*h)[:len(*h)-1]
	return last
}
