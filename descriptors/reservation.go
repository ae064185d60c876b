package descriptors

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// A Reservation says how many hits a request reserves on a limit. Its methods may be called concurrently.
type Reservation struct {
	words *rules.Reserve
	// estimate is nil if all reserve the same.
	estimate *estimate
}

// settledCosts is of how many requests the cost is kept, and ninth the place of the cost, in ascending order, that nine
// of ten did not exceed.
const (
	settledCosts = 64
	ninth        = settledCosts * 9 / 10
)

// An estimate is what nine of ten of the last requests have cost.
type estimate struct {
	p90   atomic.Uint64
	mu    sync.Mutex
	costs [settledCosts]uint64
	next  int
}

// newReservation returns what a limit's word reserve means, nil without.
func newReservation(r *rules.Reserve) *Reservation {
	if r == nil {
		return nil
	}
	v := &Reservation{words: r}
	if r.Amount == 0 {
		// Cheap requests end first. So until as many have ended as it takes, the first estimate holds.
		v.estimate = &estimate{}
		for i := range v.estimate.costs {
			v.estimate.costs[i] = uint64(r.First)
		}
		v.estimate.p90.Store(uint64(r.First))
	}
	return v
}

// Hits is what the next request reserves on a counter of p, whose numbers may be those of a row or an override.
func (v *Reservation) Hits(p *limiter.Policy) uint64 {
	least, most := v.words.Range(p)
	if v.estimate == nil {
		return least
	}
	return min(max(least, v.estimate.p90.Load()), most)
}

// Estimated reports whether that is what nine of ten have cost lately.
func (v *Reservation) Estimated() bool { return v.estimate != nil }

// Settled takes note of what a request has cost, for a caller that settles it by itself: see [Plan.Learn].
func (v *Reservation) Settled(cost uint64) { v.learn(cost) }

// learn takes note of what a request has cost. It takes a microsecond.
func (v *Reservation) learn(cost uint64) {
	e := v.estimate
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.costs[e.next] = cost
	e.next = (e.next + 1) % settledCosts
	sorted := e.costs
	slices.Sort(sorted[:])
	e.p90.Store(sorted[ninth])
}

// Learn takes note of what the request has cost that its leases reserved hits for, after the batch is decided.
func (p *Plan) Learn() {
	for i := range p.Matches {
		if p.Matches[i].Lease == 0 {
			continue
		}
		for at := range p.ChargesOf(i) {
			v := p.Limits[at].Reservation
			if v == nil || v.estimate == nil || p.Batch.Decisions[at].Charged == 0 {
				continue
			}
			if cost, known := p.CostBeside(at); known {
				v.learn(cost)
			}
		}
	}
}

// CostBeside returns what the request has cost for which charge at, decided, brings a lease of reserved hits. Another charge
// on the same counter says so. Of several leases on one counter the first that was held has the first cost, and so on,
// as the batch was decided. The cost is not known if there are fewer costs.
func (p *Plan) CostBeside(at int) (hits uint64, known bool) {
	of, earlier := &p.Batch.Charges[at], 0
	isSame := func(c *limiter.Charge) bool { return c.ID == of.ID && c.Policy.Algorithm == of.Policy.Algorithm }
	for i := range at {
		if c := &p.Batch.Charges[i]; c.Refund && isSame(c) && p.Batch.Decisions[i].Charged > 0 {
			earlier++
		}
	}
	for i := range p.Batch.Charges {
		if c := &p.Batch.Charges[i]; !c.Refund && !c.Reserve && isSame(c) {
			if earlier == 0 {
				return c.Hits, true
			}
			earlier--
		}
	}
	return 0, false
}
