package answer

import (
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// CountQuota counts what an Envoy has done by itself with requests of a descriptor, by a rule of a set. Nothing is
// counted if other rules are in force by now. Beyond are those allowed that the limit would have denied if it, or
// the service, were not in shadow mode. One goroutine calls it at a time.
func (s *Service) CountQuota(set *descriptors.Set, r *descriptors.Rule, entries []descriptors.Entry, allowed, denied, beyond uint64) {
	rules := s.rules.Load()
	if rules == nil || rules.set != set || allowed == 0 && denied == 0 {
		return
	}
	x := &s.quota // as if a request had come to the rule
	x.plan.DomainIndex = r.DomainIndex()
	x.plan.Matches = append(x.plan.Matches[:0], descriptors.Match{Rule: r})
	x.decoder.req.Descriptors = append(x.decoder.req.Descriptors[:0], descriptors.Descriptor{Entries: entries})
	counters := s.ruleCounters(rules, x, 0, r.Limits[0])
	clear(x.plan.Matches)
	clear(x.decoder.req.Descriptors)
	beyond = min(beyond, allowed)
	h := telemetry.Hits{Total: limiter.SaturatingAdd(allowed, denied), Within: allowed - beyond, Over: limiter.SaturatingAdd(denied, beyond)}
	if r.Shadow {
		h.Shadow = beyond
	} else {
		s.metrics.GlobalShadow.Add(float64(beyond))
	}
	counters.Add(h)
}
