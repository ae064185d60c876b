package simulate

import (
	"container/heap"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/simulate/report"
	"github.com/sluice-ratelimit/sluice/store"
)

// A blockModel has the blocks of all replicas, and what will happen to them.
type blockModel struct {
	*storeModel

	of     []*store.SimulatedReplica
	events eventQueue
	// limits are the uses of the limits of hot counters.
	limits map[identity.ID]*report.StoreUse
	found  []limiter.State // scratch
}

func newBlockModel(m *storeModel, replicas int) *blockModel {
	bl := &blockModel{storeModel: m, limits: map[identity.ID]*report.StoreUse{}}
	for i := range replicas {
		bl.of = append(bl.of, store.NewSimulatedReplica(store.SimulatedStore{
			Table: m.table, Trip: time.Duration(m.trip), Replicas: replicas, Schedule: bl.events.add,
			Send: func(now limiter.Time, id identity.ID) limiter.Time {
				reply, commands := m.replicas[i].send(now, m.trip, 0)
				if l := bl.limits[id]; l != nil {
					l.Commands += float64(commands)
				}
				m.total.Commands += float64(commands)
				return reply
			},
		}))
	}
	return bl
}

// memory returns the approximate size in bytes.
func (m *blockModel) memory() (n int64) {
	const replicaBytes, hotBytes, limitBytes, eventBytes = 1 << 20, 2 << 10, 64, 512
	n = int64(len(m.of))*replicaBytes + int64(m.hot())*hotBytes
	return n + int64(len(m.limits))*limitBytes + int64(len(m.events.heap))*eventBytes
}

// hot returns the number of hot counters of all replicas.
func (m *blockModel) hot() (n int) {
	for _, r := range m.of {
		n += r.Hot()
	}
	return n
}

// decide decides the charges of a plan from blocks of the current replica. If done is false, the
// store must decide; hot is true if the only counter may have blocks.
func (m *blockModel) decide(at limiter.Time, plan *descriptors.Plan) (done, hot bool) {
	m.events.runUntil(at)
	r, b := m.of[m.replica], &plan.Batch
	if len(b.Charges) == 0 {
		return false, false
	}
	if done, hot = r.Decide(at, b); done {
		return done, hot
	}
	if m.hot() == 0 {
		clear(m.limits)
	}
	for i := range b.Charges {
		if r.Uses(&b.Charges[i]) {
			m.limits[b.Charges[i].ID] = m.use(plan.Limits[i])
		}
	}
	return false, hot
}

// learn makes the current replica learn, when the reply arrives, the states that a request has left.
func (m *blockModel) learn(at, reply limiter.Time, plan *descriptors.Plan) {
	r, b := m.of[m.replica], &plan.Batch
	for len(m.found) < len(b.Charges) {
		m.found = append(m.found, limiter.State{})
	}
	b.Stored().ReadStates(m.table, at, m.found[:len(b.Charges)])
	for i := range b.Charges {
		if !r.Uses(&b.Charges[i]) {
			continue
		}
		c, p, d, left := b.Charges[i], b.Charges[i].Policy.Clone(nil), b.Decisions[i], m.found[i]
		c.Policy, left.Counts = &p, slices.Clone(left.Counts)
		m.events.add(reply, func(now limiter.Time) { r.Learn(now, at, &c, &left, &d) })
	}
}

// finish runs all events. In the end no counter is hot.
func (m *blockModel) finish() {
	for len(m.events.heap) > 0 {
		m.events.runUntil(m.events.heap[0].at)
	}
}

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
func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].number < h[j].number
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push adds an event.
func (h *eventHeap) Push(e any) { *h = append(*h, e.(event)) } //nolint:forcetypeassert // nothing else is pushed

// Pop removes the last event.
func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = event{}
	*h = (*h)[:len(*h)-1]
	return last
}
