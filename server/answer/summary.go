package answer

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A summary is the parts of a decision that headers, metadata and the body of a denial describe.
type summary struct {
	// described is the index of the match that the headers describe: the last one that is over its
	// limit and not a quota. If there is none, it is the first one with the fewest remaining hits, or
	// -1 if none has a limit that is not hidden.
	described int
	// denying is the index of the match that denied_by and the response to a denial describe, or -1
	// if the request is admitted. It is the last match that denies and is not a quota; if all are
	// quotas, the first. A match whose denying limits are all hidden is chosen only if there is no
	// other. The response describes the limit of the charge response, or no limit if hides is true.
	denying, response int
	hides             bool
	// wait is the time until the limits that denied the request, hidden or not, would admit it: the
	// longest time of those that are not quotas and, unless a quota passes, the shortest of the
	// quotas. It is 0 if the request is admitted. If never is true, the request has more hits than
	// they ever admit. A limit of 0 is excepted, since it is usually temporary.
	wait  time.Duration
	never bool
	// hopeless is true if none of the limits of a choice ever admits the hits. There is then no
	// Retry-After and no retry-after-ms.
	hopeless bool
}

// summarize returns the summary of x's decision.
func (s *Service) summarize(x *Exchange) summary {
	all := summary{described: -1, denying: -1}
	fewest := uint32(math.MaxUint32)
	quotas := quotaWait{}
	for i := range x.statuses {
		st := &x.statuses[i]
		if st.limit == nil {
			continue
		}
		over := st.code == codeOverLimit
		isQuota := over && s.isQuota(x, i)
		switch {
		case st.hidden():
		case over && !isQuota:
			all.described = i
			fewest = 0
		case st.remaining < fewest:
			all.described = i
			fewest = st.remaining
		}
		if !x.overLimit {
			continue
		}
		if over && x.denies(st.charge) {
			at, hidden := x.responseCharge(i)
			// A limit that is not hidden is preferred, then one that is not a quota.
			if all.denying < 0 || all.hides && !hidden || all.hides == hidden && !isQuota {
				all.denying = i
				all.response = at
				all.hides = hidden
			}
		}
		m := &x.plan.Matches[i]
		for at := m.First; at < m.First+m.Count; at++ {
			if x.denies(at) {
				all.addWait(&quotas, &x.plan.Batch.Charges[at], &x.plan.Batch.Decisions[at])
			}
		}
	}
	if quotas.wait > 0 {
		all.wait = max(all.wait, quotas.wait)
		all.never = all.never || quotas.never
		all.hopeless = all.hopeless || quotas.hopeless
	}
	return all
}

// A quotaWait is the shortest wait of the quotas that deny a request.
type quotaWait struct {
	wait            time.Duration
	never, hopeless bool // as in summary
}

// addWait adds the wait of a charge that denies to that of the request or of the quotas.
func (all *summary) addWait(quotas *quotaWait, c *limiter.Charge, d *limiter.Decision) {
	none := d.RetryAfter == limiter.Never && c.Choice != limiter.NoChoice
	never := none || d.RetryAfter == limiter.Never && c.Policy.Limit > 0
	switch {
	case c.Mode != limiter.Quota:
		all.wait = max(all.wait, d.Reset)
		all.never = all.never || never
		all.hopeless = all.hopeless || none
	case quotas.wait == 0, quotas.never && !never, quotas.never == never && d.Reset < quotas.wait:
		quotas.wait = d.Reset
		quotas.never = never
		quotas.hopeless = none
	}
}

// denies reports whether a charge denies the request. A quota over its limit does not if another
// quota passes.
func (x *Exchange) denies(charge int) bool {
	c := &x.plan.Batch.Charges[charge]
	return denies(c, &x.plan.Batch.Decisions[charge]) && (c.Mode != limiter.Quota || !x.quotaPasses)
}

// findQuotaPass reports whether a quota passes, although the request is denied by other limits.
func (x *Exchange) findQuotaPass() bool {
	b := &x.plan.Batch
	passes := b.QuotaPass
	others := false
	for i := range b.Charges {
		c := &b.Charges[i]
		d := &b.Decisions[i]
		isQuota := c.Mode == limiter.Quota
		passes = passes || isQuota && !d.Over
		others = others || !isQuota && denies(c, d)
	}
	return passes && others
}

// responseCharge returns the charge of match i that the response to its denial describes, and whether
// its limit is hidden: that of the status or, if it is hidden, the visible one that denies longest.
func (x *Exchange) responseCharge(i int) (charge int, hidden bool) {
	st := &x.statuses[i]
	m := &x.plan.Matches[i]
	charge = st.charge
	hidden = st.hidden()
	if !hidden {
		return charge, false
	}
	for at := m.First; at < m.First+m.Count; at++ {
		isVisible := at != st.charge && !x.plan.Limits[at].Hidden && x.denies(at)
		if isVisible && (hidden || x.plan.Batch.Decisions[at].Reset > x.plan.Batch.Decisions[charge].Reset) {
			charge = at
			hidden = false
		}
	}
	return charge, hidden
}

// isQuota reports whether match i is a quota.
func (s *Service) isQuota(x *Exchange, i int) bool {
	rule := x.plan.Matches[i].Rule
	return s.settings.QuotaMode || rule != nil && rule.Quota
}
