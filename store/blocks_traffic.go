package store

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// acquire is acquireNow for the present period and charge i of b, unless a block would have been too
// small a moment ago.
func (h *hotCounter) acquire(m moment, b *limiter.Batch, i int) {
	if int64(m.elapsed) >= h.retryAt.Load() && !h.paused.Load() && !h.acquiring.Load() {
		h.acquireNow(m, periodAt(&h.policy, m.store), b, i)
	}
}

// acquireNow requests the next block of a period, unless one is being requested, none is needed, or it
// would not have more hits than charge i of b, which may be nil.
func (h *hotCounter) acquireNow(m moment, p period, b *limiter.Batch, i int) {
	if !h.acquiring.CompareAndSwap(false, true) {
		return
	}
	hits := uint64(1)
	if b != nil {
		hits = b.Charges[i].Hits
		h.observe = nil
		if b.Observer != nil {
			h.observe = b.Observer.ObserveBlock(i)
		}
	}
	if !h.request(m, p, max(hits+1, minBlock)) {
		h.acquiring.Store(false)
	}
}

// request requests a block, and reports whether [hotCounter.Decided] will be called.
func (h *hotCounter) request(m moment, p period, atLeast uint64) bool {
	m.store = max(m.store, p.start) // if the period has not begun
	if !h.needsBlock(m, p) {
		return false
	}
	if isBucket(&h.policy) {
		h.life = h.lifeOfBlock(m.store)
	}
	hits := h.size(m, p)
	if hits < atLeast || isBucket(&h.policy) && h.life < 2*time.Duration(h.blocks.trip.Load()) {
		h.retryAt.Store(int64(m.elapsed + retryBlock))
		return false
	}
	h.batch.Reset()
	h.batch.Partition = h.partition
	h.current = p
	h.sent = m.elapsed
	h.batch.Charges = append(h.batch.Charges, h.chargeOf(hits, false))
	h.commands.Add(1)
	return h.blocks.store.chargeBlock(h, m)
}

// lifeOfBlock returns how long the next block of a bucket lasts. The block raises the level to its life,
// if the level is lower. So its life is at most the present level, or minLife: an idle bucket keeps its
// burst.
func (h *hotCounter) lifeOfBlock(at limiter.Time) time.Duration {
	most := min(h.blocks.hold(), blockLife(&h.policy))
	h.mu.Lock()
	defer h.mu.Unlock()
	level := time.Duration(h.known[0].Time - at)
	return min(max(level, minLife), most)
}

// size returns the hits of the next block, which is charged in the period p.
func (h *hotCounter) size(m moment, p period) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	room := h.roomLocked(m.store, p.end)
	share := (room - min(room, h.reserve())) / h.blocks.replicasOrMost()
	needed, hold := h.demandLocked(m.elapsed)
	need := needed.hits
	rate := needed.hits / float64(hold)
	used := h.willBeUsed(rate, m)
	rest := h.life
	if isBucket(&h.policy) { // unused hits are lost, so they are not more than the bucket refills
		need = min(need, float64(hold)/float64(h.policy.Window)*float64(h.policy.Limit))
	} else {
		share /= 3
		rest = time.Duration(p.end - m.store)
		if m.store > p.start { // requests do not use the block before it arrives
			used = max(used, rate*float64(h.blocks.trip.Load()))
		}
	}
	if rest < hold || isBucket(&h.policy) { // what is left at the end is of no use
		part := max(0, float64(rest)/float64(hold))
		need = need*part - used
		if h.policy.Algorithm != limiter.FixedWindow { // they would count later, too
			need -= deviations * math.Sqrt(needed.excess*part)
		}
	}
	return min(share, uint64(max(0, need)))
}

// roomLocked returns how many hits the store has room for, by its latest reply.
func (h *hotCounter) roomLocked(at, end limiter.Time) uint64 {
	var found [1]limiter.State
	for i := range h.known {
		if h.known[i].Time == end {
			found[0] = h.known[i]
		}
	}
	if h.policy.Algorithm != limiter.FixedWindow {
		found[0] = h.known[0]
	}
	if isBucket(&h.policy) {
		found[0].Time = max(found[0].Time, at+limiter.Time(h.life))
	}
	h.peek.Reset()
	h.peek.Charges = append(h.peek.Charges, limiter.Charge{ID: h.charge.ID, Policy: &h.policy})
	h.peek.Stored().Decide(at, found[:])
	return h.peek.Decisions[0].Remaining
}

// charged adds the hits of the block, which the store has decided at the time at.
func (h *hotCounter) charged(at limiter.Time) {
	d := &h.batch.Decisions[0]
	p := h.current
	begun := true
	switch {
	case isBucket(&h.policy):
		p.end = at + limiter.Time(h.life)
	case h.policy.Algorithm == limiter.FixedWindow:
		begun = p.start <= at
	default:
		p = periodAt(&h.policy, at)
	}
	if h.batch.Stored().StateAfter(at, 0, &h.left); h.policy.Algorithm == limiter.FixedWindow {
		h.left = limiter.State{Hits: d.Before + d.Charged, Time: p.end} // also of the next window
	}
	if !d.Over {
		h.add(d.Charged, p, h.sent+time.Duration(p.end-at)) // it was charged after it was sent
		h.blocks.count(blockAcquired, d.Charged)
		if h.observe != nil {
			h.observe(at, p.end, d.Before, d.Before+d.Charged)
		}
	}
	if begun && (!d.Over || !isBucket(&h.policy)) {
		h.blocks.memory.updateCounters(at, &h.batch, &h.left) // also learns
	} else { // the mirror has only the current window, and no bucket as of the end of a block
		h.blocks.learn(at, &h.batch.Charges[0], &h.left, d)
	}
}

// Decided implements [limiter.Waiter]. If the store has not decided, the hits of the block may be
// lost.
func (h *hotCounter) Decided(error) { h.acquiring.Store(false) }

// replied implements [ending].
func (h *hotCounter) replied(_ *Store, req *request, _ *limiter.State) (keeps bool) {
	h.charged(req.repliedAt)
	return false
}

// fallsBack implements [ending].
func (*hotCounter) fallsBack() bool { return false }

// outlivesShard implements [ending]: returnBlocks returns the hits of a block that was charged.
func (*hotCounter) outlivesShard() bool { return true }

// Exceeded implements [limiter.Waiter].
func (*hotCounter) Exceeded(int) func(hits uint64) { return nil }
