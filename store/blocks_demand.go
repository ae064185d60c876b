package store

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const (
	// demandPeriod is the time over which demand is measured.
	demandPeriod  = 500 * time.Millisecond
	demandSamples = 10
	// minDemand is the number of requests in demandPeriod that make a counter hot. With less than half
	// of it, its blocks would often be idle.
	minDemand = 10
	// largestFor is for how long, at least, the largest request is remembered.
	largestFor = 5 * time.Second
)

// A demandSample is the demand until a time.
type demandSample struct {
	at                            time.Duration
	hits, extra, excess, unwanted int64
}

// warm counts the requests with charge i, whose counter is not hot. Counters share cells: in a demandPeriod
// a cell has the requests of one counter. It consists of 28 bits of the identity, 16 bits of the number of
// the period, and the number of requests.
func (bl *blocks) warm(now limiter.Time, b *limiter.Batch, i int, name []byte) {
	const periodBits, hitBits = 16, 20
	c := &b.Charges[i]
	cell := &bl.cold[c.ID.Lo%uint64(len(bl.cold))]
	tag := c.ID.Lo >> 16 << (periodBits + hitBits)
	tag |= uint64(now) / uint64(demandPeriod) & (1<<periodBits - 1) << hitBits //nolint:gosec // any number
	old := cell.Load()
	requests := uint64(1)
	switch {
	case old>>hitBits == tag>>hitBits:
		requests = min(requests+old&(1<<hitBits-1), 1<<hitBits-1)
	case old>>hitBits&(1<<periodBits-1) == tag>>hitBits&(1<<periodBits-1):
		return // used by another counter
	}
	cell.Store(tag | requests) // a concurrent one may be lost
	if requests >= minDemand {
		bl.promote(b, i, name, requests, bl.elapsed())
	}
}

// promote makes the counter of charge i hot.
func (bl *blocks) promote(b *limiter.Batch, i int, name []byte, hits uint64, elapsed time.Duration) {
	c := &b.Charges[i]
	if bl.setOf(c).free() == nil { // other counters have the places
		return
	}
	h := &hotCounter{
		blocks: bl, policy: c.Policy.Clone(nil), partition: b.Partition, name: append([]byte(nil), name...),
	}
	h.policy.CountRefused = false
	h.policy.Prepare()
	h.charge = limiter.Charge{ID: c.ID, Policy: &h.policy, Hits: 1}
	if isBucket(&h.policy) {
		h.timed = make([]timedBlock, len(h.balances))
		h.balances = [2]*balance{&h.timed[0].balance, &h.timed[1].balance}
	} else {
		h.windows = make([]window, len(h.balances))
		h.balances = [2]*balance{&h.windows[0].balance, &h.windows[1].balance}
	}
	h.samples[0], h.sampled = demandSample{at: elapsed - demandPeriod, hits: -int64(hits)}, 1 //nolint:gosec // 20 bits
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
	trip = min(trip, time.Second)
	if old == 0 {
		bl.trip.Store(int64(trip))
		return
	}
	bl.trip.Store(old + (int64(trip)-old)/8)
}

// wants counts a request.
func (h *hotCounter) wants(hits uint64) {
	n := int64(hits) //nolint:gosec // at most hitsMask
	h.demand.Add(n)
	if n > 1 {
		h.extra.Add(n - 1)
		m := min(n, 1<<23) // so that the sum does not overflow
		h.excess.Add(m * (m - 1))
		for n := h.newer.Load(); hits > n && !h.newer.CompareAndSwap(n, hits); n = h.newer.Load() {
		}
	}
}

// A need is what requests need of a counter in a time.
type need struct {
	hits   float64
	excess float64 // variance of hits in excess of that of requests with one hit
	took   time.Duration
}

// within returns the need in another time.
func (n need) within(d time.Duration) need {
	part := float64(d) / float64(n.took)
	return need{n.hits * part, n.excess * part, d}
}

// needLocked returns what requests needed lately, and their number.
func (h *hotCounter) needLocked(elapsed time.Duration) (n need, requests float64) {
	oldest := h.samples[max(0, h.sampled-len(h.samples))%len(h.samples)]
	n.hits = float64(h.demand.Load() - oldest.hits)
	n.excess = float64(h.excess.Load() - oldest.excess)
	n.took = max(elapsed-oldest.at, demandPeriod/demandSamples)
	return n, n.hits - float64(h.extra.Load()-oldest.extra) + float64(h.unwanted.Load()-oldest.unwanted)
}

// demandLocked returns what requests need in the time hold, for which a block of h suffices.
func (h *hotCounter) demandLocked(elapsed time.Duration) (n need, hold time.Duration) {
	hold = h.blocks.hold()
	n, _ = h.needLocked(elapsed)
	if n = n.within(hold); n.hits < smallBlock && !isBucket(&h.policy) {
		return n.within(2 * hold), 2 * hold
	}
	return n, hold
}

// largest returns the hits of the largest request of late, 0 if all were single hits.
func (h *hotCounter) largest() uint64 { return max(h.older.Load(), h.newer.Load()) }

// reserve returns how many hits blocks leave in the store for requests that are larger than a block.
func (h *hotCounter) reserve() uint64 {
	return reserved * h.blocks.replicasOrMost() * h.largest()
}

// sample records the demand, at most demandSamples times in demandPeriod.
func (h *hotCounter) sample(elapsed time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if elapsed-h.samples[(h.sampled-1)%len(h.samples)].at < demandPeriod/demandSamples {
		return
	}
	h.samples[h.sampled%len(h.samples)] = demandSample{
		elapsed, h.demand.Load(), h.extra.Load(), h.excess.Load(), h.unwanted.Load(),
	}
	h.sampled++
}

// replicasOrMost returns the number of replicas that have blocks, or a guess.
func (bl *blocks) replicasOrMost() uint64 {
	if n := bl.replicas.Load(); n > 0 {
		return uint64(n)
	}
	return unknownReplicas
}
