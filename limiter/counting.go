package limiter

import "time"

// counting is embedded by the algorithms that count hits up to a limit: fixed windows, sliding
// windows and logs.
type counting struct{}

func (counting) validate(*Policy) error                       { return nil }
func (counting) capacity(p *Policy) uint64                    { return uint64(p.Limit) }
func (counting) resizes() bool                                { return false }
func (counting) hasWeight() bool                              { return true }
func (counting) resetState(_ Time, _ *Policy, st state) state { return state{mark: st.mark} }

// undo removes hits of the current window. It does nothing if the charge was in another one.
func (counting) undo(v *view, _, _ Time, _ *Policy, mark int64, d *Decision) (after state, lost bool) {
	after = v.state
	if v.mark == mark {
		after.used -= min(after.used, d.Charged)
	}
	return after, false
}

// refund removes hits from st and returns how many it removed.
func (counting) refund(st state, hits uint64) (after state, gave uint64) {
	gave = min(hits, st.used)
	st.used -= gave
	return st, gave
}

// A countingAlgorithm is an algorithm that uses decideCount.
type countingAlgorithm interface {
	refund(st state, hits uint64) (after state, gave uint64)
	// force counts denied hits. It returns by how many hits the counter has grown, which is what a
	// refund may give back.
	force(limit uint64, st state, hits uint64) (after state, grown uint64)
	// retryAfter returns the time until hits, at most the limit, are admitted. ok is false if the
	// cells of v have changed.
	retryAfter(v *view, at Time, p *Policy, limit uint64, st state, hits uint64) (time.Duration, bool)
}

// admits reports whether hits are within the limit.
func admits(limit, used, hits uint64) bool { return hits <= limit && used <= limit-hits }

// decideCount implements algorithm.decide for a countingAlgorithm.
func decideCount(
	a countingAlgorithm, limit uint64, v *view, at Time, c *Charge, hits uint64, st state, d *Decision,
) (after state, ok bool) {
	*d = Decision{Before: st.used + st.past}
	switch {
	case c.Refund:
		st, d.Charged = a.refund(st, hits)
		d.Charged += c.Hits - hits // the others offset charges of the same request
		return st, true
	case admits(limit, d.Before, hits):
		d.Charged = hits
		st.used += hits
		return st, true
	}
	d.Over = true
	d.RetryAfter = Never
	ok = true
	if c.Policy.CountRefused {
		st, d.Charged = a.force(limit, st, hits)
	}
	if hits <= limit {
		d.RetryAfter, ok = a.retryAfter(v, at, c.Policy, limit, st, hits)
	}
	return st, ok
}

// remaining returns how many single hits are within the limit in the state st.
func remaining(limit uint64, st state) uint64 { return limit - min(st.used+st.past, limit) }

// finishOver completes an over-limit decision: Reset is the time until the same hits are admitted.
// It returns false and does nothing for other decisions.
func (d *Decision) finishOver(p *Policy) bool {
	if !d.Over {
		return false
	}
	d.Remaining = 0
	d.Reset = d.RetryAfter
	if d.Reset == Never {
		d.Reset = p.Window
	}
	d.Reset = max(1, d.Reset)
	return true
}
