package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// ruleLabels are the labels of all series of a limit, so that any two of them can be joined.
var ruleLabels = []string{"domain", "key1", "key2", "rule", "limit"}

func ruleDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, ruleLabels, nil)
}

// ruleHits are the counters of each limit.
var ruleHits = []struct {
	desc *prometheus.Desc
	of   func(Hits) uint64
}{
	{ruleDesc("ratelimit_service_rate_limit_total_hits", "Hits that this limit was applied to."), func(h Hits) uint64 { return h.Total }},
	{ruleDesc("ratelimit_service_rate_limit_over_limit", "Hits over the limit."), func(h Hits) uint64 { return h.Over }},
	{ruleDesc("ratelimit_service_rate_limit_near_limit", "Hits within the limit, above NEAR_LIMIT_RATIO of it."), func(h Hits) uint64 { return h.Near }},
	{ruleDesc("ratelimit_service_rate_limit_within_limit", "Hits within the limit."), func(h Hits) uint64 { return h.Within }},
	{ruleDesc("ratelimit_service_rate_limit_shadow_mode", "Hits over a limit in shadow mode or a soft limit, which were allowed."), func(h Hits) uint64 { return h.Shadow }},
	{ruleDesc("ratelimit_service_rate_limit_total_negative_hits", "Hits of refunds, including those without an effect. No other metric counts them."), func(h Hits) uint64 { return h.Negative }},
}

var (
	exceededDesc = ruleDesc("sluice_store_exceeded_hits_total", "Hits that were admitted while the store was unavailable, and exceeded the limit once it was available again.")
	limitDesc    = ruleDesc("sluice_rule_limit_requests", "Requests that a configured limit allows per window.")
	windowDesc   = ruleDesc("sluice_rule_window_seconds", "Window of a configured limit.")
	seriesDesc   = prometheus.NewDesc("sluice_rule_series", "Limits with series of their own, by the origin of their names: configured, or runtime (from requests).", []string{"kind"}, nil)
	omittedDesc  = prometheus.NewDesc("sluice_rule_series_omitted", "Configured limits with hits that count under rule=\"other\" because the bound on configured series is reached.", nil, nil)
	spillDesc    = prometheus.NewDesc("sluice_rule_series_other_total", "Decisions counted under rule=\"other\" because the bound on runtime series is reached, or their name is too long.", nil, nil)
)

type rulesCollector struct{ *Rules }

// Describe implements [prometheus.Collector].
func (rulesCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, h := range ruleHits {
		ch <- h.desc
	}
	for _, d := range []*prometheus.Desc{exceededDesc, leasesDesc, costsDueDesc, costsReceivedDesc, expiredDesc, penaltiesDesc, assignedDesc, limitDesc, windowDesc, seriesDesc, omittedDesc, spillDesc} {
		ch <- d
	}
}

// ruleSeries are the series of one limit.
type ruleSeries struct {
	key      RuleKey
	counters *RuleCounters
	limit    RuleLimit
}

// snapshot returns all series, and the number of limits of each kind.
func (r *Rules) snapshot() (all []ruleSeries, configured, runtime, omitted int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range *r.runtime.Load() {
		if !s.alias {
			runtime++
		}
	}
	return r.seriesLocked(), len(r.configured), runtime, r.omitted
}

// seriesLocked returns all series.
func (r *Rules) seriesLocked() (all []ruleSeries) {
	overflow, known := *r.overflow.Load(), *r.runtime.Load()
	all = make([]ruleSeries, 0, len(r.configured)+len(overflow)+len(known))
	for k, c := range r.configured {
		all = append(all, ruleSeries{k, c.counters, c.limit})
	}
	for domain, counters := range overflow {
		k := otherKey(domain)
		// Emitted once it has hits. Most installations never see it.
		if _, taken := r.configured[k]; !taken && counters.used() {
			all = append(all, ruleSeries{key: k, counters: counters})
		}
	}
	for _, s := range known {
		if !s.alias {
			all = append(all, ruleSeries{key: s.key, counters: s.counters})
		}
	}
	return all
}

// Collect implements [prometheus.Collector].
func (c rulesCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	updates := c.updates // append-only
	c.mu.Unlock()
	for _, update := range updates {
		update()
	}
	all, configured, runtime, omitted := c.snapshot()
	for i := range all {
		all[i].collect(ch, c.stored.Load())
	}
	ch <- prometheus.MustNewConstMetric(seriesDesc, prometheus.GaugeValue, float64(configured), "configured")
	ch <- prometheus.MustNewConstMetric(seriesDesc, prometheus.GaugeValue, float64(runtime), "runtime")
	ch <- prometheus.MustNewConstMetric(omittedDesc, prometheus.GaugeValue, float64(omitted))
	ch <- prometheus.MustNewConstMetric(spillDesc, prometheus.CounterValue, float64(c.spill.Load()))
}

// collect emits the series of one limit. stored reports whether there is a store.
func (s *ruleSeries) collect(ch chan<- prometheus.Metric, stored bool) {
	labels := []string{s.key.Domain, s.key.Key1, s.key.Key2, s.key.Rule, s.key.Limit}
	hits := s.counters.Hits()
	for _, h := range ruleHits {
		ch <- prometheus.MustNewConstMetric(h.desc, prometheus.CounterValue, float64(h.of(hits)), labels...)
	}
	if stored {
		ch <- prometheus.MustNewConstMetric(exceededDesc, prometheus.CounterValue, float64(s.counters.exceeded.Load()), labels...)
	}
	s.collectLeases(ch, labels, stored)
	s.collectPenalties(ch, labels)
	s.collectQuota(ch, labels)
	if s.limit.Window > 0 {
		ch <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(s.limit.Requests), labels...)
		ch <- prometheus.MustNewConstMetric(windowDesc, prometheus.GaugeValue, s.limit.Window.Seconds(), labels...)
	}
}
