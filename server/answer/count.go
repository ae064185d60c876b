package answer

import (
	"cmp"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// count adds one decided request to the metrics.
func (s *Service) count(rules *serving, x *Exchange) {
	if !x.plan.KnownDomain {
		s.metrics.UnknownDomains.Add(x.decoder.req.Domain, uint64(len(x.plan.Matches)))
		return
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
			if m.Rule == nil {
				unmatched(rules, x, i)
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

// countCharge adds charge at, of descriptor i of the request.
func (s *Service) countCharge(rules *serving, x *Exchange, i, at int) {
	charge, d := &x.plan.Batch.Charges[at], &x.plan.Batch.Decisions[at]
	h := telemetry.Hits{Negative: charge.Hits}
	switch {
	case x.plan.Matches[i].Lease > 0, charge.Reserve && !d.Over: // no hits, and none that are known
		return
	case !charge.Refund:
		h = s.split(charge, d)
	}
	counters := s.ruleCounters(rules, x, i, x.plan.Limits[at])
	if counters.Add(h); d.PenaltyStarted {
		counters.CountPenalty()
	}
	if denies(charge, d) {
		denied(rules, x, i, at)
	}
}

// denies reports whether a charge is one for which its request is denied.
func denies(c *limiter.Charge, d *limiter.Decision) bool {
	return d.Over && d.Denied && c.Mode.Denies()
}

// unmatched tells of descriptor i of the request, which no rule matches, if somebody wants to know now.
func unmatched(rules *serving, x *Exchange, i int) {
	domain := rules.live[x.plan.DomainIndex]
	if domain.WantsUnmatched() {
		domain.Unmatched(rules.set.Unmatched(x.plan.DomainIndex, x.decoder.req.Descriptors[i].Entries))
	}
}

// denied tells of charge at, of descriptor i of the request, for which the request is denied.
func denied(rules *serving, x *Exchange, i, at int) {
	limit := x.plan.Limits[at]
	switch {
	case x.plan.Matches[i].Override:
		limit = nil // it is the plan's memory
	case limit.Table != nil: // it may be the plan's memory, too
		limit = rules.set.Limits[limit.Index]
	}
	var name []byte
	if at < len(x.plan.Names) {
		name = x.plan.Names[at]
	}
	charge, domain := &x.plan.Batch.Charges[at], rules.live[x.plan.DomainIndex]
	again := false
	for earlier := x.plan.Matches[i].First; earlier < at; earlier++ {
		again = again || denies(&x.plan.Batch.Charges[earlier], &x.plan.Batch.Decisions[earlier])
	}
	domain.Denied(&live.Denial{
		ID: charge.ID, Limit: limit, Policy: charge.Policy, Domain: x.plan.DomainName,
		Entries: x.decoder.req.Descriptors[i].Entries, Name: name, Again: again,
	})
	if d := &x.plan.Batch.Decisions[at]; d.Penalty > 0 {
		domain.Penalised(charge.ID, d.Reset)
	}
}

// ruleCounters returns the counters of the limit that descriptor i of the request came to.
func (s *Service) ruleCounters(rules *serving, x *Exchange, i int, l *descriptors.Limit) *telemetry.RuleCounters {
	m := &x.plan.Matches[i]
	if !m.Override && !m.Rule.RuntimeMetric && l.Row == "" {
		return rules.counters.Get(int(l.Index))
	}
	entries := x.decoder.req.Descriptors[i].Entries
	var key1End, key2End int
	label := ""
	if m.Override {
		x.metric, key1End, key2End = s.settings.metricKeys().AppendOverride(x.metric[:0], entries)
	} else {
		x.metric, key1End, key2End = s.settings.metricKeys().Append(x.metric[:0], m.Rule, entries)
		label = l.Label
	}
	counters, lookup := s.metrics.Rules.Runtime(x.lookup, rules.labels[x.plan.DomainIndex], label, x.metric, key1End, key2End)
	x.lookup = lookup
	if !m.Override {
		counters.SetLimit(l.Index)
	}
	return counters
}

// split divides a charge's hits as envoyproxy/ratelimit does: over_limit lies beyond the limit,
// near_limit above the near threshold and within the limit. One request may have both. For
// buckets the limit is their capacity.
func (s *Service) split(charge *limiter.Charge, d *limiter.Decision) telemetry.Hits {
	hits, limit := charge.Hits, charge.Policy.Capacity()
	// float32 rounds large limits, perhaps upwards, as in envoyproxy/ratelimit. Without min
	// the difference below would wrap around, as it does there.
	near := min(limit, uint64(float32(limit)*s.settings.NearLimitRatio))
	h := telemetry.Hits{Total: hits}
	switch {
	case !d.Over && d.Denied:
		// It had room, but its group was denied.
	case !d.Over:
		h.Within = hits
		if after := limiter.SaturatingAdd(d.Before, hits); after > near {
			h.Near = min(hits, after-near)
		}
	case charge.Policy.CountRefused && d.Charged > 0 && d.Before < limit && (d.Penalty == 0 || d.PenaltyStarted):
		within := min(hits, limit-d.Before)
		h.Near = d.Before + within - min(d.Before+within, max(near, d.Before))
		h.Over = hits - within
	default: // none of them counts, or the limit was exceeded before
		h.Over = hits
	}
	if !charge.Mode.Denies() {
		h.Shadow = h.Over
	}
	return h
}

// Exceeded implements [limiter.Waiter]: it returns what counts hits of a charge that turn out to be beyond the
// limit when the store is back. Nobody else uses x meanwhile.
func (x *Exchange) Exceeded(charge int) func(hits uint64) {
	of := -1 // the descriptor
	for i := range x.plan.Matches {
		if m := &x.plan.Matches[i]; m.First <= charge && charge < m.First+m.Count {
			of = i
		}
	}
	for _, candidate := range x.plan.Candidates {
		if candidate.Charge == charge {
			of = candidate.Match
		}
	}
	if of < 0 || !x.plan.KnownDomain {
		return nil
	}
	return x.service.ruleCounters(x.rules, x, of, x.plan.Limits[charge]).CountExceeded
}
