package answer

import (
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// CountQuota counts what an Envoy has done by itself with requests of a descriptor, by a rule of a set. Nothing is
// counted if other rules are in force by now. One goroutine calls it at a time.
func (s *Service) CountQuota(set *descriptors.Set, r *descriptors.Rule, entries []descriptors.Entry, allowed, denied uint64) {
	rules := s.rules.Load()
	if rules == nil || rules.set != set || allowed+denied == 0 {
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
	counters.Add(telemetry.Hits{Total: allowed + denied, Within: allowed, Over: denied})
}

// quotaScratch is memory of [Service.CountQuota].
type quotaScratch struct{ metric, lookup []byte }
