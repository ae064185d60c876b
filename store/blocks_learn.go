package store

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A denial is a state that leaves no room, or not enough for some hits.
type denial struct {
	limiter.State

	end   limiter.Time // of its period; see periodEnd
	until time.Duration
}

// isDenied reports whether the store has recently denied hits of the period that ends at end.
func (h *hotCounter) isDenied(end limiter.Time, elapsed time.Duration) bool {
	d := h.denial.Load()
	return d != nil && d.end == end && elapsed < d.until+denyFor && !h.blocks.down.Load()
}

// repeatDenial stores in found a state with which the store has denied hits. A bucket has no room for
// single hits while the denial is repeated; its new tokens are not lost. With requests of several hits
// that would favour the large ones. After denyFor repeatDenial reports
// false to one caller, for whom the store decides, and to the others after another denyFor.
func (h *hotCounter) repeatDenial(hits uint64, at, end limiter.Time, elapsed time.Duration, found *limiter.State) bool {
	d := h.denial.Load()
	if d == nil || d.end != end ||
		elapsed >= d.until && h.denial.CompareAndSwap(d, &denial{d.State, end, elapsed + denyFor}) {
		return false
	}
	copyState(found, &d.State)
	if isBucket(&h.policy) && h.largest() == 0 {
		k := h.policy.Bucket()
		found.Time = max(found.Time, at+limiter.Time(k.Duration(k.Full-min(k.Full, k.Need(hits)))+1))
	}
	return true
}

// learn records the state in which the store left the counter of c at the time at. d is the decision
// of c.
func (bl *blocks) learn(at limiter.Time, c *limiter.Charge, left *limiter.State, d *limiter.Decision) {
	h := bl.find(c)
	if h == nil || !hasBlocks(c.Policy) {
		return
	}
	end, elapsed := periodEnd(&h.policy, at), bl.elapsed()
	if left.Time > 0 && c.Policy.Algorithm == limiter.FixedWindow {
		end = left.Time
	}
	denied := !c.Refund && d.Before+d.Charged >= h.policy.Capacity() || d.Over && !isBucket(&h.policy)
	h.tight.Store(d.Remaining < h.reserve()+h.unused())
	h.mu.Lock()
	defer h.mu.Unlock()
	i := 0
	if h.policy.Algorithm == limiter.FixedWindow &&
		(h.known[1].Time == end || h.known[0].Time != end && h.known[1].Time < h.known[0].Time) {
		i = 1
	}
	copyState(&h.known[i], left)
	if denied {
		d := &denial{end: end, until: elapsed + denyFor}
		copyState(&d.State, left)
		h.denial.Store(d)
	} else if d := h.denial.Load(); d != nil && d.end == end {
		h.denial.Store(nil)
	}
}
