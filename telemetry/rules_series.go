package telemetry

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

type ruleMetric struct {
	name, help string
	kind       dto.MetricType
	// of returns the value for a limit, and false if the limit has none.
	of func(*ruleSeries) (value float64, ok bool)
}

// ruleMetrics are the metrics of limits, by name.
var ruleMetrics = slices.SortedFunc(slices.Values(slices.Concat(hitMetrics, leaseMetrics, []ruleMetric{
	exceededMetric, limitMetric, windowMetric, penaltiesMetric, assignedMetric,
})), func(a, b ruleMetric) int { return cmp.Compare(a.name, b.name) })

var hitMetrics = []ruleMetric{
	countHits("total_hits", "Hits that this limit was applied to.", func(h Hits) uint64 { return h.Total }),
	countHits("over_limit", "Hits over the limit.", func(h Hits) uint64 { return h.Over }),
	countHits("near_limit", "Hits within the limit, above NEAR_LIMIT_RATIO of it.", func(h Hits) uint64 { return h.Near }),
	countHits("within_limit", "Hits within the limit.", func(h Hits) uint64 { return h.Within }),
	countHits("shadow_mode", "Hits over a limit in shadow mode or a soft limit, which were allowed.", func(h Hits) uint64 { return h.Shadow }),
	countHits("total_negative_hits", "Hits of refunds, including those without an effect. No other metric counts them.", func(h Hits) uint64 { return h.Negative }),
}

func countHits(name, help string, of func(Hits) uint64) ruleMetric {
	return ruleMetric{
		"ratelimit_service_rate_limit_" + name, help, dto.MetricType_COUNTER,
		func(s *ruleSeries) (float64, bool) { return float64(of(s.hits)), true },
	}
}

var (
	exceededMetric = ruleMetric{
		"sluice_store_exceeded_hits_total",
		"Hits that were admitted while the store was unavailable, and exceeded the limit once it was available again.",
		dto.MetricType_COUNTER,
		func(s *ruleSeries) (float64, bool) { return float64(s.counters.exceeded.Load()), s.stored },
	}
	limitMetric = ruleMetric{
		"sluice_rule_limit_requests", "Requests that a configured limit allows per window.", dto.MetricType_GAUGE,
		func(s *ruleSeries) (float64, bool) { return float64(s.limit.Requests), s.limit.Window > 0 },
	}
	windowMetric = ruleMetric{
		"sluice_rule_window_seconds", "Window of a configured limit.", dto.MetricType_GAUGE,
		func(s *ruleSeries) (float64, bool) { return s.limit.Window.Seconds(), s.limit.Window > 0 },
	}
)

var (
	seriesDesc  = prometheus.NewDesc("sluice_rule_series", "Limits with series of their own, by the origin of their names: configured, or runtime (from requests).", []string{"kind"}, nil)
	omittedDesc = prometheus.NewDesc("sluice_rule_series_omitted", "Configured limits with hits that count under rule=\"other\" because the bound on configured series is reached.", nil, nil)
	spillDesc   = prometheus.NewDesc("sluice_rule_series_other_total", "Decisions counted under rule=\"other\" because the bound on runtime series is reached, or their name is too long.", nil, nil)
)

// rulesCollector emits the numbers of series.
type rulesCollector struct{ *Rules }

// Describe implements [prometheus.Collector].
func (c rulesCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements [prometheus.Collector].
func (c rulesCollector) Collect(ch chan<- prometheus.Metric) {
	configured, runtime, omitted := c.seriesCounts()
	ch <- prometheus.MustNewConstMetric(seriesDesc, prometheus.GaugeValue, float64(configured), "configured")
	ch <- prometheus.MustNewConstMetric(seriesDesc, prometheus.GaugeValue, float64(runtime), "runtime")
	ch <- prometheus.MustNewConstMetric(omittedDesc, prometheus.GaugeValue, float64(omitted))
	ch <- prometheus.MustNewConstMetric(spillDesc, prometheus.CounterValue, float64(c.spill.Load()))
}

// seriesCounts returns the number of limits of each kind.
func (r *Rules) seriesCounts() (configured, runtime, omitted int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range *r.runtime.Load() {
		if !s.alias {
			runtime++
		}
	}
	return len(r.configured), runtime, r.omitted
}

// ruleSeries are the series of one limit.
type ruleSeries struct {
	key      RuleKey
	counters *RuleCounters
	limit    RuleLimit
	// hits are those at the time of a scrape. stored is true if there is a store.
	hits   Hits
	stored bool
}

// gather returns the metrics of all limits.
func (r *Rules) gather() []*dto.MetricFamily {
	r.mu.Lock()
	updates := r.updates // append-only
	r.mu.Unlock()
	for _, update := range updates {
		update()
	}
	r.mu.Lock()
	all := r.seriesLocked()
	r.mu.Unlock()
	return r.families(all, r.stored.Load())
}

func (r *Rules) seriesLocked() (all []ruleSeries) {
	overflow := *r.overflow.Load()
	known := *r.runtime.Load()
	all = make([]ruleSeries, 0, len(r.configured)+len(overflow)+len(known))
	for k, c := range r.configured {
		all = append(all, ruleSeries{key: k, counters: c.counters, limit: c.limit})
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

// families returns the metrics of limits, by name. They do not pass through the registry, whose
// channels and checks of each metric would take most of the time of a scrape. It sorts all.
func (r *Rules) families(all []ruleSeries, stored bool) []*dto.MetricFamily {
	slices.SortFunc(all, func(a, b ruleSeries) int { return compareKeys(a.key, b.key) })
	template := labelTemplate(r.tags)
	metrics := make([][]*dto.Metric, len(ruleMetrics))
	for i := range all {
		s := &all[i]
		s.hits = s.counters.Hits()
		s.stored = stored
		labels := s.labels(template)
		for m := range ruleMetrics {
			if value, ok := ruleMetrics[m].of(s); ok {
				metrics[m] = append(metrics[m], ruleMetrics[m].sample(labels, value))
			}
		}
	}
	var families []*dto.MetricFamily
	for i := range ruleMetrics {
		m := &ruleMetrics[i]
		if len(metrics[i]) > 0 {
			families = append(families,
				&dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &m.kind, Metric: metrics[i]})
		}
	}
	return families
}

// sample returns a metric. It allocates once.
func (m *ruleMetric) sample(labels []*dto.LabelPair, value float64) *dto.Metric {
	if m.kind == dto.MetricType_GAUGE {
		s := &struct {
			metric dto.Metric
			gauge  dto.Gauge
			value  float64
		}{value: value}
		s.gauge.Value = &s.value
		s.metric.Label = labels
		s.metric.Gauge = &s.gauge
		return &s.metric
	}
	s := &struct {
		metric  dto.Metric
		counter dto.Counter
		value   float64
	}{value: value}
	s.counter.Value = &s.value
	s.metric.Label = labels
	s.metric.Counter = &s.counter
	return &s.metric
}

// labelTemplate returns the labels of all series of a limit, so that any two of them can be joined,
// and the tags, by name.
func labelTemplate(tags prometheus.Labels) []*dto.LabelPair {
	var template []*dto.LabelPair
	for _, name := range []string{"domain", "key1", "key2", "rule", "limit"} {
		template = append(template, &dto.LabelPair{Name: new(name)})
	}
	for name, value := range tags {
		template = append(template, &dto.LabelPair{Name: new(name), Value: new(value)})
	}
	slices.SortFunc(template, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return template
}

// labels fills a template. The labels refer to s.
func (s *ruleSeries) labels(template []*dto.LabelPair) []*dto.LabelPair {
	labels := slices.Clone(template)
	for i, l := range template {
		if l.Value == nil {
			labels[i] = &dto.LabelPair{Name: l.Name, Value: s.label(l.GetName())}
		}
	}
	return labels
}

func (s *ruleSeries) label(name string) *string {
	switch name {
	case "domain":
		return &s.key.Domain
	case "key1":
		return &s.key.Key1
	case "key2":
		return &s.key.Key2
	case "rule":
		return &s.key.Rule
	default:
		return &s.key.Limit
	}
}

// compareKeys orders series as a registry does: by their labels.
func compareKeys(a, b RuleKey) int {
	return cmp.Or(
		cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Key1, b.Key1), cmp.Compare(a.Key2, b.Key2),
		cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Rule, b.Rule),
	)
}

// CountPenalty counts a penalty that has started.
func (c *RuleCounters) CountPenalty() { c.penalties.Add(1) }

var penaltiesMetric = ruleMetric{
	"sluice_penalties_total",
	"Penalties that have started: a client was denied by a limit with a penalty, and stays denied until the step of the penalty is over.",
	dto.MetricType_COUNTER,
	func(s *ruleSeries) (float64, bool) {
		n := s.counters.penalties.Load()
		return float64(n), s.limit.Penalty || n > 0
	},
}
