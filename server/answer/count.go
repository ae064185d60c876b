package answer

import (
	"cmp"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// countRequest adds a decided request to the metrics.
func (s *Service) countRequest(rules *activeRules, x *Exchange) {
	if !x.plan.KnownDomain {
		s.metrics.UnknownDomains.Add(x.decoder.req.Domain, uint64(len(x.plan.Matches)))
		return
	}
	if n := x.plan.NotAddresses(); n > 0 {
		s.metrics.NotAddresses.Add(float64(n))
	}
	if x.plan.Exempt != nil {
		s.metrics.ExemptRequests.Inc()
	}
	for i := range x.plan.Matches {
		m := &x.plan.Matches[i]
		if m.IgnoredOverride {
			s.metrics.IgnoredOverrides.Inc()
		}
		if m.Rule != nil && m.Rule.Divided() != nil {
			s.metrics.Quota.DirectDescriptors.Inc()
		}
		if m.Count == 0 {
			if m.Rule == nil && x.plan.Exempt == nil {
				recordUnmatched(rules, x, i)
			}
			if m.Rule != nil && (m.Rule.Unlimited || m.Unlimited != nil) && m.Lease == 0 {
				h := telemetry.Hits{Total: m.Hits, Within: m.Hits}
				if x.decoder.req.Descriptors[i].Refund {
					h = telemetry.Hits{Negative: m.Hits}
				}
				s.ruleCounters(rules, x, i, cmp.Or(m.Unlimited, m.Rule.Limits[0])).Add(h)
			}
			continue
		}
		for at := m.First; at < m.First+m.Count; at++ {
			if charge := &x.plan.Batch.Charges[at]; charge.Refund && m.Lease == 0 {
				s.metrics.RefundedHits.Add(float64(x.plan.Batch.Decisions[at].Charged))
			}
			s.countCharge(rules, x, i, at)
		}
	}
	for _, candidate := range x.plan.Candidates {
		s.countCharge(rules, x, candidate.Match, candidate.Charge)
	}
}

// countCharge adds charge at of descriptor i to the metrics.
func (s *Service) countCharge(rules *activeRules, x *Exchange, i, at int) {
	charge := &x.plan.Batch.Charges[at]
	d := &x.plan.Batch.Decisions[at]
	h := telemetry.Hits{Negative: charge.Hits}
	switch {
	// A charge that returns a lease has no hits. The cost of a reservation is not known yet.
	case x.plan.Matches[i].Lease > 0, charge.Reserve && !d.Over:
		return
	case !charge.Refund:
		h = s.classifyHits(charge, d)
	}
	counters := s.ruleCounters(rules, x, i, x.plan.Limits[at])
	switch {
	case charge.Hits == 0:
		if x.expectsCost(charge) {
			counters.CountCostDue(x.plan.Batch.HasLease())
		}
	case !charge.Refund && !charge.Reserve:
		counters.CountCost()
	}
	if counters.Add(h); d.PenaltyStarted {
		counters.CountPenalty()
	}
	if x.denies(at) {
		recordDenial(rules, x, i, at)
	}
}

// expectsCost reports whether a charge of 0 hits is the check of an admitted request whose cost
// follows at the end of its stream. Limits with a penalty may count only failures.
func (x *Exchange) expectsCost(c *limiter.Charge) bool {
	return !c.Refund && !x.plan.Batch.Denied && c.Policy.Penalty == nil && !c.Policy.UsesLeases()
}

// denies reports whether the charge denies its request.
func denies(c *limiter.Charge, d *limiter.Decision) bool {
	return d.Over && d.Denied && c.Mode.Denies()
}

// recordUnmatched records descriptor i of the request, which no rule matches, within the recorder's
// budget.
func recordUnmatched(rules *activeRules, x *Exchange, i int) {
	domain := rules.live[x.plan.DomainIndex]
	if domain.AcceptsUnmatched() {
		domain.RecordUnmatched(rules.set.Unmatched(x.plan.DomainIndex, x.decoder.req.Descriptors[i].Entries))
	}
}

// recordDenial records that charge at of descriptor i denies the request.
func recordDenial(rules *activeRules, x *Exchange, i, at int) {
	limit := x.plan.Limits[at]
	switch {
	case x.plan.Matches[i].Override:
		limit = nil // it points into the plan
	case limit.Table != nil: // it may point into the plan
		limit = rules.set.Limits[limit.Index]
	}
	var name []byte
	if at < len(x.plan.Names) {
		name = x.plan.Names[at]
	}
	charge := &x.plan.Batch.Charges[at]
	domain := rules.live[x.plan.DomainIndex]
	duplicate := false
	for earlier := x.plan.Matches[i].First; earlier < at; earlier++ {
		duplicate = duplicate || x.denies(earlier)
	}
	domain.RecordDenial(&live.Denial{
		ID: charge.ID, Limit: limit, Policy: charge.Policy, Domain: x.plan.DomainName,
		Entries: x.plan.Limits[at].CounterEntries(x.decoder.req.Descriptors[i].Entries), Name: name, Duplicate: duplicate,
	})
	if d := &x.plan.Batch.Decisions[at]; d.Penalty > 0 {
		domain.RecordPenalty(charge.ID, d.Reset)
	}
}

// ruleCounters returns the counters of the limit that applies to descriptor i of the request.
func (s *Service) ruleCounters(rules *activeRules, x *Exchange, i int, l *descriptors.Limit) *telemetry.RuleCounters {
	m := &x.plan.Matches[i]
	if !m.Override && !m.Rule.RuntimeMetric && l.Row == "" {
		return rules.counters.Get(int(l.Index))
	}
	entries := x.decoder.req.Descriptors[i].Entries
	var key1End, key2End int
	label := ""
	if m.Override {
		x.metricKey, key1End, key2End = s.settings.metricKeys().AppendOverride(x.metricKey[:0], entries)
	} else {
		x.metricKey, key1End, key2End = s.settings.metricKeys().Append(x.metricKey[:0], m.Rule, entries)
		label = l.Label
	}
	counters, lookup := s.metrics.Rules.Runtime(x.lookupKey, rules.labels[x.plan.DomainIndex], label, x.metricKey,
		key1End, key2End)
	x.lookupKey = lookup
	if !m.Override {
		counters.SetLimit(l.Index)
	}
	return counters
}

// classifyHits divides a charge's hits as envoyproxy/ratelimit does: hits beyond the limit are
// over_limit, and hits within the limit but above the near threshold are near_limit. One request
// may have both. The limit of a bucket is its capacity.
func (s *Service) classifyHits(charge *limiter.Charge, d *limiter.Decision) telemetry.Hits {
	hits := charge.Hits
	limit := charge.Policy.Capacity()
	// As in envoyproxy/ratelimit, float32 may round large limits up; min keeps near within the
	// limit.
	near := min(limit, uint64(float32(limit)*s.settings.NearLimitRatio))
	h := telemetry.Hits{Total: hits}
	switch {
	case !d.Over && d.Denied: // by another charge of the group
		if d.Charged == 0 {
			h.Uncharged = hits
		}
	case !d.Over:
		h.Within = hits
		if after := limiter.SaturatingAdd(d.Before, hits); after > near {
			h.Near = min(hits, after-near)
		}
	case charge.Policy.CountRefused && d.Charged > 0 && d.Before < limit && (d.Penalty == 0 || d.PenaltyStarted):
		within := min(hits, limit-d.Before)
		h.Near = d.Before + within - min(d.Before+within, max(near, d.Before))
		h.Over = hits - within
	default: // denied hits are not charged, or the limit was exceeded before
		h.Over = hits
	}
	if !charge.Mode.Denies() {
		h.Shadow = h.Over
	}
	return h
}

// Exceeded implements [limiter.Waiter]. The returned function counts hits of the charge that were
// admitted during an outage of the store and exceeded the limit. The caller has exclusive use of x.
func (x *Exchange) Exceeded(charge int) func(hits uint64) {
	descriptor := x.descriptorOf(charge)
	if descriptor < 0 || !x.plan.KnownDomain {
		return nil
	}
	return x.service.ruleCounters(x.rules, x, descriptor, x.plan.Limits[charge]).CountExceeded
}

// descriptorOf returns the index of the descriptor of a charge, or -1.
func (x *Exchange) descriptorOf(charge int) int {
	for i := range x.plan.Matches {
		if m := &x.plan.Matches[i]; m.First <= charge && charge < m.First+m.Count {
			return i
		}
	}
	for _, candidate := range x.plan.Candidates {
		if candidate.Charge == charge {
			return candidate.Match
		}
	}
	return -1
}
