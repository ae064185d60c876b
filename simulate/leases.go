package simulate

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// Limits that give leases hold something until a request ends, which a log says by how long it took. The call at the
// end, of which no log tells, is decided then.

// leaseHeap are the leases of requests that have not ended, as a heap by their ends.
type leaseHeap []lease

// lease is what a request holds on one counter.
type lease struct {
	ends    limiter.Time
	replica int
	release limiter.Charge // that gives it back
	// cost is charged in its place, by a limit that reserves.
	cost        uint64
	reservation *descriptors.Reservation
}

// Len, Less, Swap, Push and Pop are for package heap.
func (r *leaseHeap) Len() int           { return len(*r) }
func (r *leaseHeap) Less(i, j int) bool { return (*r)[i].ends < (*r)[j].ends }
func (r *leaseHeap) Swap(i, j int)      { (*r)[i], (*r)[j] = (*r)[j], (*r)[i] }

// Push adds a lease.
func (r *leaseHeap) Push(h any) { *r = append(*r, h.(lease)) } //nolint:forcetypeassert // nothing else is pushed

// Pop takes the last one.
func (r *leaseHeap) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// endRequests ends the requests that have by the time now.
func (s *variant) endRequests(now limiter.Time) {
	for len(s.leases) > 0 && s.leases[0].ends <= now {
		h := heap.Pop(&s.leases).(lease) //nolint:forcetypeassert // nothing else is pushed
		b := &s.endBatch
		b.Reset()
		if b.Charges = append(b.Charges, h.release); h.reservation != nil {
			b.Charges = append(b.Charges, limiter.Charge{ID: h.release.ID, Policy: h.release.Policy, Hits: h.cost, Group: 1})
		}
		if s.tables[h.replica].Decide(h.ends, b); h.reservation != nil && b.Decisions[0].Charged > 0 {
			h.reservation.RecordCost(h.cost)
		}
	}
}

// reserve has charges of a request reserve whose hits are what it will have cost.
func (s *variant) reserve() {
	for i := range s.plan.Batch.Charges {
		if c := &s.plan.Batch.Charges[i]; c.Policy.Reserve != nil && !c.Refund && !c.Reserve {
			c.Reserve, c.Hits = true, s.plan.Limits[i].Reservation.Hits(c.Policy)
		}
	}
}

// addLeases keeps the leases of a request that was decided until it ends.
func (s *variant) addLeases(ends limiter.Time, replica int) {
	for i, at := range s.plan.AllLeases() {
		c := &s.plan.Batch.Charges[at]
		h := lease{ends: ends, replica: replica, release: limiter.Charge{ID: c.ID, Policy: c.Policy, Hits: s.plan.Batch.Lease(at), Refund: true}}
		if s.plan.Limits[at].Index < 0 || s.plan.Limits[at].Table != nil { // the plan may have its policy
			h.release.Policy = new(c.Policy.Clone(nil))
		}
		if c.Policy.Reserve != nil {
			h.cost, h.reservation = s.plan.Matches[i].Hits, s.plan.Limits[at].Reservation
		}
		heap.Push(&s.leases, h)
	}
}

// selectDuration finds where lines say how long requests took, if a limit needs that.
func (r *readPlan) selectDuration(o *Options) error {
	sets := []*descriptors.Set{o.Rules}
	for _, alternative := range o.Against {
		sets = append(sets, alternative.Rules)
	}
	for _, set := range sets {
		for _, l := range set.Limits {
			if l.Rule.Unlimited || !l.Policy.UsesLeases() {
				continue
			}
			if r.duration = r.format.Select(accesslog.FieldDuration); r.duration < 0 {
				return fmt.Errorf("how long did requests take? %s at %v holds what they take until they end, and the log does not say when: "+
					"add %%DURATION%% to its format, or as a field %q in milliseconds (--format json duration=FIELD); the log has %s",
					l.Rule.Path(), l.Pos, accesslog.FieldDuration, r.format.FieldList())
			}
			r.durationUnit = float64(r.format.DurationUnit()) / float64(time.Millisecond)
			return nil
		}
	}
	return nil
}

var errDuration = errors.New("duration: want milliseconds, for a limit that holds what requests take until they end")

// durationOf returns how many milliseconds the request of a line took.
func (r *readPlan) durationOf(l *accesslog.Line) (uint32, error) {
	if r.duration < 0 {
		return 0, nil
	}
	ms, err := strconv.ParseFloat(string(l.Value(r.duration)), 64)
	ms *= r.durationUnit
	if err != nil || math.IsNaN(ms) || ms < 0 || ms > math.MaxUint32 {
		return 0, errDuration
	}
	return uint32(ms), nil
}
