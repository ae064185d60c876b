package store

import "github.com/sluice-ratelimit/sluice/limiter"

// isDenied reports whether the store has recently denied hits of the present period.
func (h *hotCounter) isDenied(m moment) bool {
	d := h.denial.Load()
	return d != nil && d.period.contains(m.store) && m.elapsed < d.until+denyFor && !h.blocks.down.Load()
}

// repeatDenial stores in found a state with which the store has denied hits. If all requests have one
// hit, a bucket has no room while the denial is repeated, although it gets tokens, which are not lost;
// otherwise that would favour large requests. After denyFor, repeatDenial reports false to one
// caller, for which the store decides; others continue to repeat the denial.
func (h *hotCounter) repeatDenial(hits uint64, m moment, found *limiter.State) bool {
	d := h.denial.Load()
	if d == nil || !d.period.contains(m.store) ||
		m.elapsed >= d.until && h.denial.CompareAndSwap(d, &denial{d.State, d.period, m.elapsed + denyFor}) {
		return false
	}
	copyState(found, &d.State)
	if isBucket(&h.policy) && h.largest() == 0 {
		k := h.policy.Bucket()
		found.Time = max(found.Time, m.store+limiter.Time(k.Duration(k.Full-min(k.Full, k.Need(hits)))+1))
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
	if left.Time > 0 && c.Policy.Algorithm == limiter.FixedWindow {
		at = left.Time - 1
	}
	p := periodAt(&h.policy, at)
	isFull := !c.Refund && d.Before+d.Charged >= h.policy.Capacity()
	denied := isFull || d.Over && !isBucket(&h.policy)
	h.tight.Store(d.Remaining < h.reserve()+h.unused())
	h.mu.Lock()
	defer h.mu.Unlock()
	i := 0
	if h.policy.Algorithm == limiter.FixedWindow &&
		(h.known[1].Time == p.end || h.known[0].Time != p.end && h.known[1].Time < h.known[0].Time) {
		i = 1
	}
	copyState(&h.known[i], left)
	if denied {
		d := &denial{period: p, until: bl.elapsed() + denyFor}
		copyState(&d.State, left)
		h.denial.Store(d)
	} else if d := h.denial.Load(); d != nil && d.period == p {
		h.denial.Store(nil)
	}
}
