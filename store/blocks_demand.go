package store

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const (
	// demandPeriod is the time over which demand is measured.
	demandPeriod  = 500 * time.Millisecond
	demandSamples = 10
	// minDemand is the number of hits in demandPeriod that make a counter hot.
	minDemand = 5
)

// A demandSample is the demand until a time.
type demandSample struct {
	at   time.Duration
	hits int64
}

// warm counts the hits of charge i, whose counter is not hot. Counters share cells: in a demandPeriod
// a cell has the hits of one counter. It consists of 28 bits of the identity, 16 bits of the number of
// the period, and the hits.
func (bl *blocks) warm(now limiter.Time, b *limiter.Batch, i int, name []byte) {
	const periodBits, hitBits = 16, 20
	c := &b.Charges[i]
	cell, tag := &bl.cold[c.ID.Lo%uint64(len(bl.cold))], c.ID.Lo>>16<<(periodBits+hitBits)
	tag |= uint64(now) / uint64(demandPeriod) & (1<<periodBits - 1) << hitBits //nolint:gosec // any number
	old, hits := cell.Load(), min(c.Hits, 1<<(hitBits-1))
	switch {
	case old>>hitBits == tag>>hitBits:
		hits = min(hits+old&(1<<hitBits-1), 1<<hitBits-1)
	case old>>hitBits&(1<<periodBits-1) == tag>>hitBits&(1<<periodBits-1):
		return // used by another counter
	}
	cell.Store(tag | hits) // a concurrent hit may be lost
	if hits >= minDemand {
		bl.promote(b, i, name, hits, bl.elapsed())
	}
}

// promote makes the counter of charge i hot.
func (bl *blocks) promote(b *limiter.Batch, i int, name []byte, hits uint64, elapsed time.Duration) {
	c := &b.Charges[i]
	if bl.setOf(c).free() == nil { // other counters have the places
		return
	}
	h := &hotCounter{blocks: bl, policy: c.Policy.Clone(nil), partition: b.Partition, name: append([]byte(nil), name...)}
	if b.Describer != nil {
		h.description = b.Describer.DescribeCounter(i)
	}
	h.policy.CountRefused = false
	h.policy.Prepare()
	h.charge = limiter.Charge{ID: c.ID, Policy: &h.policy, Hits: 1}
	for i := range h.balances {
		h.balances[i].timed = isBucket(&h.policy)
	}
	h.samples[0], h.sampled = demandSample{elapsed - demandPeriod, -int64(hits)}, 1 //nolint:gosec // 20 bits
	if !bl.insert(h) {
		return
	}
	select {
	case bl.wake <- struct{}{}:
	default:
	}
}

// hold returns the time for which a block suffices, unless the demand is small: see demandLocked.
func (bl *blocks) hold() time.Duration { return minHold + 4*time.Duration(bl.trip.Load()) }

// learnTrip records a round trip.
func (bl *blocks) learnTrip(trip time.Duration) {
	old := bl.trip.Load()
	if trip = min(trip, time.Second); old == 0 {
		bl.trip.Store(int64(trip))
		return
	}
	bl.trip.Store(old + (int64(trip)-old)/8)
}

// demandLocked returns the hits that requests need in the time hold, for which a block of h suffices.
func (h *hotCounter) demandLocked(elapsed time.Duration) (hits float64, hold time.Duration) {
	oldest := h.samples[max(0, h.sampled-len(h.samples))%len(h.samples)]
	took := max(elapsed-oldest.at, demandPeriod/demandSamples)
	hold = h.blocks.hold()
	hits = float64(h.demand.Load()-oldest.hits) / float64(took) * float64(hold)
	if hits < smallBlock && !isBucket(&h.policy) {
		return 2 * hits, 2 * hold
	}
	return hits, hold
}

// sample records the demand, at most demandSamples times in demandPeriod.
func (h *hotCounter) sample(elapsed time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if elapsed-h.samples[(h.sampled-1)%len(h.samples)].at < demandPeriod/demandSamples {
		return
	}
	h.samples[h.sampled%len(h.samples)] = demandSample{elapsed, h.demand.Load()}
	h.sampled++
}
