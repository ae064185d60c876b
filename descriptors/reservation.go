package descriptors

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// A Reservation determines how many hits a request reserves on a limit. Its methods may be called
// concurrently.
type Reservation struct {
	reserve *rules.Reserve
	// estimate is nil if the amount is fixed.
	estimate *estimate
}

// costSamples is the number of recent costs that an estimate is made of, and p90Index the index of
// their 90th percentile.
const (
	costSamples = 64
	p90Index    = costSamples * 9 / 10
)

// estimate is the 90th percentile of recent costs.
type estimate struct {
	p90   atomic.Uint64
	mu    sync.Mutex
	costs [costSamples]uint64 // a ring
	next  int                 // index of the oldest cost
	seen  int                 // number of recorded costs, at most costSamples
}

// newReservation returns the Reservation for a limit's field reserve, or nil.
func newReservation(r *rules.Reserve) *Reservation {
	if r == nil {
		return nil
	}
	v := &Reservation{reserve: r}
	if r.Amount == 0 {
		// Cheap requests end first, so the initial estimate has full weight until enough requests
		// have ended.
		v.estimate = &estimate{}
		for i := range v.estimate.costs {
			v.estimate.costs[i] = uint64(r.First)
		}
		v.estimate.p90.Store(uint64(r.First))
	}
	return v
}

// Hits returns how many hits the next request reserves on a counter of p, whose numbers may be
// those of a row or an override.
func (v *Reservation) Hits(p *limiter.Policy) uint64 {
	lowest, highest := v.reserve.Range(p)
	if v.estimate == nil {
		return lowest
	}
	return min(max(lowest, v.estimate.p90.Load()), highest)
}

// Samples returns the number of recorded costs on which Hits depends, and the number from which on
// it no longer depends on the initial estimate. Both are 0 if Hits is fixed.
func (v *Reservation) Samples() (recorded, needed int) {
	e := v.estimate
	if e == nil {
		return 0, 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen, costSamples
}

// RecordCost records the cost of a request, for callers that settle without a [Plan].
func (v *Reservation) RecordCost(cost uint64) { v.recordCost(cost) }

// recordCost adds a cost to the estimate, if there is one. A cost of 0 is that of a failed request,
// which predicts nothing about successful ones. It takes about a microsecond.
func (v *Reservation) recordCost(cost uint64) {
	e := v.estimate
	if e == nil || cost == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.costs[e.next] = cost
	e.next = (e.next + 1) % costSamples
	e.seen = min(e.seen+1, costSamples)
	sorted := e.costs
	slices.Sort(sorted[:])
	e.p90.Store(sorted[p90Index])
}

// RecordCosts records the costs that the request settles. It must be called after the batch is
// decided.
func (p *Plan) RecordCosts() {
	for i := range p.Matches {
		if p.Matches[i].Lease == 0 {
			continue
		}
		for at := range p.ChargesOf(i) {
			v := p.Limits[at].Reservation
			if v == nil || v.estimate == nil || p.Batch.Decisions[at].Charged == 0 {
				continue
			}
			if cost, known := p.LeaseCost(at); known {
				v.recordCost(cost)
			}
		}
	}
}

// LeaseCost returns the cost that is settled together with the lease that charge at returns: the
// sum of other charges on the same counter. If the request returns several leases of a counter, each
// settles one charge, and the last lease all others. known is false if no charge is left for it.
func (p *Plan) LeaseCost(at int) (hits uint64, known bool) {
	charges := p.Batch.Charges
	lease := &p.Batch.Charges[at]
	earlier := 0
	isLast := true
	isSame := func(c *limiter.Charge) bool { return c.ID == lease.ID && c.Policy.Algorithm == lease.Policy.Algorithm }
	for i := range charges {
		if c := &charges[i]; i != at && c.Refund && isSame(c) {
			isLast = isLast && i < at
			if i < at && p.Batch.Decisions[i].Charged > 0 {
				earlier++
			}
		}
	}
	for i := range charges {
		c := &charges[i]
		switch {
		case c.Refund, c.Reserve, !isSame(c):
		case earlier > 0:
			earlier--
		default:
			hits = limiter.SaturatingAdd(hits, c.Hits)
			known = true
			if !isLast {
				return hits, known
			}
		}
	}
	return hits, known
}
