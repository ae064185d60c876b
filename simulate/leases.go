package simulate

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// Limits with leases hold a permit or reserved hits until a request ends. The log determines that
// time by the duration of the request. Logs do not contain the end call; it is simulated at that
// time.

// lease is a lease of a request on one counter.
type lease struct {
	ends    limiter.Time
	release limiter.Charge // returns the lease
	// cost is charged when a reservation ends.
	cost        uint64
	reservation *descriptors.Reservation
}

// Less implements [heap.Element].
func (h lease) Less(other lease) bool { return h.ends < other.ends }

// SetIndex implements [heap.Element]. Leases are not moved.
func (lease) SetIndex(int) {}

// endRequests releases the leases of requests that end by now.
func (s *variant) endRequests(now limiter.Time) {
	for len(s.leases) > 0 && s.leases[0].ends <= now {
		h := s.leases[0]
		s.leases.Remove(0)
		b := &s.endBatch
		b.Reset()
		b.Charges = append(b.Charges, h.release)
		if h.reservation != nil {
			b.Charges = append(b.Charges,
				limiter.Charge{ID: h.release.ID, Policy: h.release.Policy, Hits: h.cost, Group: 1})
		}
		if s.table.Decide(h.ends, b); h.reservation != nil && b.Decisions[0].Charged > 0 {
			h.reservation.RecordCost(h.cost)
		}
	}
}

// addLeases keeps the leases of a decided request until it ends.
func (s *variant) addLeases(ends limiter.Time) {
	for i, at := range s.plan.AllLeases() {
		c := &s.plan.Batch.Charges[at]
		h := lease{
			ends: ends, release: limiter.Charge{ID: c.ID, Policy: c.Policy, Hits: s.plan.Batch.Lease(at), Refund: true},
		}
		if s.plan.Limits[at].Index < 0 || s.plan.Limits[at].Table != nil { // the policy may belong to the plan, which is reused
			h.release.Policy = new(c.Policy.Clone(nil))
		}
		if c.Policy.Reserve != nil {
			h.cost = s.plan.Matches[i].Hits
			h.reservation = s.plan.Limits[at].Reservation
		}
		s.leases.Push(h)
	}
}

// selectDuration selects the duration of requests if a limit needs it.
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
				return fmt.Errorf("%s at %v holds leases until requests end, but the log has no durations; "+
					"add %%DURATION%% to its format, or a field %q in milliseconds (--format json duration=FIELD); the log has %s",
					l.Rule.Path(), l.Pos, accesslog.FieldDuration, r.format.FieldList())
			}
			r.durationUnit = float64(r.format.DurationUnit()) / float64(time.Millisecond)
			return nil
		}
	}
	return nil
}

var errDuration = errors.New("duration: want milliseconds, for a limit that holds leases until requests end")

// durationOf returns the duration of a line's request in milliseconds.
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
