package limiter

import "time"

// counting is what the algorithms have in common that count hits up to a limit: fixed
// windows, sliding windows and logs.
type counting struct{}

func (counting) validate(*Policy) error                  { return nil }
func (counting) capacity(p *Policy) uint64               { return uint64(p.Limit) }
func (counting) resizes() bool                           { return false }
func (counting) hasWeight() bool                            { return true }
func (counting) resetState(_ Time, _ *Policy, st state) state { return state{num: st.num} }

// undo takes back hits of the current window or sub-window. If it is another one by
// now, there is nothing to take back.
func (counting) undo(v *view, _, _ Time, _ *Policy, mark int64, d *Decision) (after state, lost bool) {
	after = v.state
	if v.num == mark {
		after.used -= min(after.used, d.Charged)
	}
	return after, false
}

// refund takes a refund from st and returns how many hits went back.
func (counting) refund(st state, hits uint64) (after state, gave uint64) {
	gave = min(hits, st.used)
	st.used -= gave
	return st, gave
}

// A counter is an algorithm that counts, for count.
type countingAlgorithm interface {
	refund(st state, hits uint64) (after state, gave uint64)
	// force counts hits that were denied. It returns by how many the counter has
	// grown, which is what a refund may give back.
	force(limit uint64, st state, hits uint64) (after state, grown uint64)
	// retryAfter returns the time until hits, at most the limit, have room. It reports
	// false if the cells that say so are no longer what v shows.
	retryAfter(v *view, at Time, p *Policy, limit uint64, st state, hits uint64) (time.Duration, bool)
}

// admits reports whether hits have room.
func admits(limit, used, hits uint64) bool { return hits <= limit && used <= limit-hits }

// decideCount is algorithm.decide for those that count.
func decideCount(a countingAlgorithm, limit uint64, v *view, at Time, c *Charge, hits uint64, st state, d *Decision) (after state, ok bool) {
	*d = Decision{Before: st.used + st.past}
	switch {
	case c.Refund:
		st, d.Charged = a.refund(st, hits)
		d.Charged += c.Hits - hits
		return st, true
	case admits(limit, d.Before, hits):
		d.Charged = hits
		st.used += hits
		return st, true
	}
	d.Over, d.RetryAfter, ok = true, Never, true
	if c.Policy.CountRefused {
		st, d.Charged = a.force(limit, st, hits)
	}
	if hits <= limit {
		d.RetryAfter, ok = a.retryAfter(v, at, c.Policy, limit, st, hits)
	}
	return st, ok
}

// remaining returns how many single hits have room in the state st.
func remaining(limit uint64, st state) uint64 { return limit - min(st.used+st.past, limit) }

// finishOver finishes a decision on hits that had no room: Reset is the time until the same
// hits would pass. It reports false, and does nothing, for others.
func (d *Decision) finishOver(p *Policy) bool {
	if !d.Over {
		return false
	}
	if d.Remaining, d.Reset = 0, d.RetryAfter; d.Reset == Never {
		d.Reset = p.Window
	}
	d.Reset = max(1, d.Reset)
	return true
}
