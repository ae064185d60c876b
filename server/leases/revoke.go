package leases

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// revokeTimeout is the time limit for the release of a lease in a store. A lease that is not
// released by then stays in its counter until it expires.
const revokeTimeout = time.Second

// maxRevoking is the maximum number of leases that revokeMany releases concurrently. Each uses 600
// bytes until a store has decided its release.
const maxRevoking = 1 << 12

// revokeMany is revoke with a bound on the concurrent releases. It calls waits before it waits
// because maxRevoking releases are running.
func (t *Lessor) revokeMany(list *lease, e event, waits func()) {
	for list != nil {
		l := list
		list = l.sibling
		l.sibling = nil
		select {
		case t.slots <- struct{}{}:
		default:
			waits()
			t.slots <- struct{}{}
		}
		t.revokeWith(l, e, t.slots)
	}
}

// revoke releases the hits of a list of leases that were ended by an event.
func (t *Lessor) revoke(list *lease, e event) { t.revokeWith(list, e, nil) }

// revokeWith is revoke. If slots is not nil, an element is received from it for each released
// lease.
func (t *Lessor) revokeWith(list *lease, e event, slots chan struct{}) {
	now := t.now()
	for l := list; l != nil; l = l.sibling {
		r := &revocation{counter: t.revokedBy(e), names: [][]byte{l.Name}, slots: slots}
		b := &r.batch
		b.Charges = append(b.Charges, limiter.Charge{ID: l.ID, Policy: &l.policy, Hits: l.Number, Refund: true})
		// A reservation costs nothing if its request has not begun. If the limit was removed, the
		// end call charges the cost.
		if e != clientDead && l.policy.Reserve != nil {
			b.Charges = append(b.Charges, limiter.Charge{ID: l.ID, Policy: &l.policy, Group: 1})
			r.names = append(r.names, l.Name)
		}
		b.Budget = revokeTimeout
		b.Partition = l.Partition
		b.Clock = t.options.Now
		if done, err := t.options.Decider.Decide(now, b, r.names, r); done || err != nil {
			r.Decided(err)
		}
	}
}

// revokedBy returns the metric that counts the leases revoked by an event.
func (t *Lessor) revokedBy(e event) prometheus.Counter {
	switch e {
	case callReset:
		return t.options.Metrics.Reset
	case clientDead:
		return t.options.Metrics.Connection
	default:
		return t.options.Metrics.Reload
	}
}

// revocation is the batch that releases a lease.
type revocation struct {
	batch   limiter.Batch
	names   [][]byte
	counter prometheus.Counter
	slots   chan struct{}
}

// Decided implements [limiter.Waiter].
func (r *revocation) Decided(err error) {
	if r.slots != nil {
		<-r.slots
	}
	if err == nil && r.batch.Decisions[0].Charged > 0 {
		r.counter.Inc()
	}
}

// Exceeded implements [limiter.Waiter].
func (*revocation) Exceeded(int) func(uint64) { return nil }

var _ limiter.Waiter = (*revocation)(nil)
