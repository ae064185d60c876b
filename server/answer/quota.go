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
	limit := r.Limits[0]
	var counters *telemetry.RuleCounters
	if r.RuntimeMetric {
		q := &s.quota
		var key1End, key2End int
		q.metric, key1End, key2End = s.settings.metricKeys().Append(q.metric[:0], r, entries)
		counters, q.lookup = s.metrics.Rules.Runtime(q.lookup, rules.labels[r.DomainIndex()], limit.Label, q.metric, key1End, key2End)
		counters.OfLimit(limit.Index)
	} else {
		counters = rules.counters.Of(int(limit.Index))
	}
	beyond = min(beyond, allowed)
	h := telemetry.Hits{Total: limiter.SaturatingAdd(allowed, denied), Within: allowed - beyond, Over: limiter.SaturatingAdd(denied, beyond)}
	if r.Shadow {
		h.Shadow = beyond
	} else {
		s.metrics.GlobalShadow.Add(float64(beyond))
	}
	counters.Add(h)
}

// quotaScratch is memory of [Service.CountQuota].
type quotaScratch struct{ metric, lookup []byte }
