package answer

import (
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// CountQuota counts the requests of a descriptor that an Envoy has allowed and denied by itself
// with the quota of rule r, which belongs to set. It does nothing if the set is no longer active.
// Beyond is the number of allowed requests that the limit would have denied if neither it nor the
// service were in shadow mode. CountQuota must not be called concurrently.
func (s *Service) CountQuota(
	set *descriptors.Set, r *descriptors.Rule, entries []descriptors.Entry, allowed, denied, beyond uint64,
) {
	rules := s.rules.Load()
	if rules == nil || rules.set != set || allowed == 0 && denied == 0 {
		return
	}
	x := &s.quotaExchange // like a request that matched the rule
	x.plan.DomainIndex = r.DomainIndex()
	x.plan.Matches = append(x.plan.Matches[:0], descriptors.Match{Rule: r})
	x.decoder.req.Descriptors = append(x.decoder.req.Descriptors[:0], descriptors.Descriptor{Entries: entries})
	counters := s.ruleCounters(rules, x, 0, r.Limits[0])
	clear(x.plan.Matches)
	clear(x.decoder.req.Descriptors)
	beyond = min(beyond, allowed)
	h := telemetry.Hits{
		Total: limiter.SaturatingAdd(allowed, denied), Within: allowed - beyond, Over: limiter.SaturatingAdd(denied, beyond),
	}
	if r.Shadow {
		h.Shadow = beyond
	} else {
		s.metrics.GlobalShadow.Add(float64(beyond))
	}
	counters.Add(h)
}
