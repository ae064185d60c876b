package store

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// sweep returns idle blocks, acquires blocks of windows that are about to begin, and removes counters
// that are no longer hot.
func (bl *blocks) sweep(m moment) {
	elapsed := m.elapsed
	lead := max(2*sweepBlocks, 2*time.Duration(bl.trip.Load()))
	ended := false
	for _, h := range bl.counters() {
		h.sample(elapsed)
		h.mu.Lock()
		demand, hold := h.demandLocked(elapsed)
		n, requests := h.needLocked(elapsed)
		h.mu.Unlock()
		few := requests*float64(demandPeriod) < minDemand/2*float64(n.took)
		h.judge(few, elapsed)
		cold := few && h.acquiring.CompareAndSwap(false, true) // then no block is added
		unused := uint64(0)
		for i := range h.windows {
			unused += h.returnIdle(&h.windows[i], demand, hold, m, lead)
		}
		for i := range h.timed {
			unused += h.timed[i].dropEnded(h, m)
		}
		switch {
		case cold && (unused > 0 || h.isRemembered(elapsed)):
			h.acquiring.Store(false)
		case cold:
			h.retired = true
			ended = true
		case h.policy.Algorithm == limiter.FixedWindow && demand.hits >= minBlock && !h.paused.Load():
			next := periodAt(&h.policy, h.policy.WindowEnd(m.store))
			if time.Duration(next.start-m.store) <= lead && h.windowOf(next.end) == nil {
				h.acquireNow(m, next, nil, 0)
			}
		}
	}
	if ended {
		bl.removeRetired()
	}
}

// judge lets the blocks of h pause if they bring nothing: if there are few requests, or if they decide few
// of them for each command. It also forgets the largest request if it was long ago.
func (h *hotCounter) judge(few bool, elapsed time.Duration) {
	if elapsed >= h.largestPeriod+largestFor {
		h.largestPeriod = elapsed
		h.older.Store(h.newer.Swap(0))
	}
	commands := h.commands.Load()
	switch {
	case few:
		h.resumeAt = elapsed + 2*sweepBlocks
	case commands < judgedCommands: // too few to judge
	default:
		served := h.served.Swap(0)
		h.commands.Add(-commands)
		h.pause = min(max(minPause, 2*h.pause), maxPause)
		if served >= minServed*commands {
			h.pause = 0
		}
		h.resumeAt = elapsed + h.pause
	}
	h.paused.Store(elapsed < h.resumeAt)
}

// returnIdle returns unused hits of w to the store: all, if none was used for blockIdle; if they are more
// than maxUnused times the demand during hold, all but twice that demand; and once, when a sub-window ends
// within lead, the hits that will probably not be used. It returns the number of unused hits that are left.
func (h *hotCounter) returnIdle(
	w *window, demand need, hold time.Duration, m moment, lead time.Duration,
) (unused uint64) {
	elapsed := m.elapsed
	word := w.word.Load()
	end := limiter.Time(w.end.Load())
	until := time.Duration(w.until.Load())
	left := word & hitsMask
	begun := h.policy.Algorithm != limiter.FixedWindow || w.start.Load() <= int64(m.store)
	if begun {
		h.mergeWindow(w, m.store, end)
	}
	if left == 0 || h.blocks.down.Load() && elapsed < until { // nothing can be returned now
		return left
	}
	if word != w.seen || !begun {
		w.seen = word
		w.seenAt = elapsed
	}
	const missed = 4 // requests that have not come, so demand has paused
	large := 1 + demand.excess/max(1, demand.hits)
	hits := uint64(0)
	ending := h.policy.Algorithm == limiter.SlidingWindow && elapsed+lead >= until
	paused := demand.hits*float64(elapsed-w.seenAt) >= missed*large*float64(hold)
	switch {
	case elapsed-w.seenAt >= blockIdle || elapsed >= until || ending && paused:
		hits = left
	case ending && w.trimmed == end: // what is returned now may be too late
	case ending:
		need := demand.within(until - elapsed).hits
		hits = left - min(left, uint64(max(0, need-2*math.Sqrt(need*large)))) // two standard deviations
	case left > minBlock && left > maxUnused*uint64(demand.hits) && begun:
		hits = left - 2*uint64(demand.hits) // as many as remain after the next block
	}
	state := w.state.Load()
	if hits > 0 && !w.word.CompareAndSwap(word, word-hits) {
		return left
	}
	if ending {
		w.trimmed = end
	}
	if hits == 0 {
		return left
	}
	h.mu.Lock()
	w.granted -= min(w.granted, hits)
	h.mu.Unlock()
	h.returnHits(state, hits, end, elapsed < until)
	return left - hits
}

// returnHits returns hits that were taken off a balance with the given end and state, or counts them
// as lost.
func (h *hotCounter) returnHits(state *blockState, hits uint64, end limiter.Time, returnable bool) {
	if hits > 0 && returnable && h.blocks.store.returnHits(h, hits, end, state) {
		h.commands.Add(1)
		h.blocks.count(blockReturned, hits)
	} else {
		h.blocks.count(blockLost, hits)
	}
}

// mergeWindow merges the fixed window that ends at end, and has begun, into the mirror once. Its block may have
// been charged before it began, when the mirror had the window before it.
func (h *hotCounter) mergeWindow(w *window, at, end limiter.Time) {
	if h.policy.Algorithm != limiter.FixedWindow || w.merged.Load() == int64(end) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	to := w.state.Load()
	if to == nil || to.Time != end || w.merged.Load() == int64(end) {
		return
	}
	mirror := h.blocks.memory.mirror
	found := make([]limiter.State, 1)
	b := limiter.Batch{Charges: []limiter.Charge{h.chargeOf(0, false)}, Partition: h.partition}
	b.Stored().ReadStates(mirror, at, found)
	if found[0].Hits < to.Hits {
		b.Stored().MergeInto(mirror, at, 0, &to.State)
	}
	w.merged.Store(int64(end))
}

// dropEnded drops the unused hits of t if it has ended, and returns the number of those that are left.
func (t *timedBlock) dropEnded(h *hotCounter, m moment) (unused uint64) {
	if int64(m.elapsed) < t.until.Load() {
		return t.unused()
	}
	h.blocks.count(blockLost, h.take(&t.balance))
	return 0
}

// isRemembered reports whether hits were used that a new primary may lack. It is called by the owner of
// acquiring.
func (h *hotCounter) isRemembered(elapsed time.Duration) bool {
	if !h.blocks.down.Load() && (h.edited.Load() || elapsed >= h.sent+h.blocks.remember) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.balances {
		if b.granted > b.unused() {
			return true
		}
	}
	return false
}

// drop ends the blocks of a counter that was reset at a time of the store. Their hits are lost.
func (bl *blocks) drop(at limiter.Time, c *limiter.Charge) {
	if h := bl.find(c); h != nil {
		for _, b := range h.balances {
			if h.policy.Algorithm != limiter.FixedWindow || b.start.Load() <= int64(at) { // not the next window
				h.drop(b)
			}
		}
		h.denial.Store(nil)
	}
}
