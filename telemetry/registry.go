package telemetry

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// registry contains all metrics of a process.
type registry struct {
	// Registry is the content of /metrics: the registered collectors and the metrics of limits. Register
	// with [Metrics.Register], which adds the tags.
	Registry prometheus.Gatherer
	// tagged adds the tags to all collectors that are registered.
	tagged prometheus.Registerer
}

func newRegistry(rules *Rules) registry {
	others := prometheus.NewRegistry()
	return registry{
		tagged: prometheus.WrapRegistererWith(rules.tags, others),
		Registry: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			families, err := others.Gather()
			families = append(families, rules.gather()...)
			slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
			return families, err
		}),
	}
}

// Register adds collectors to Registry, with the tags. Their labels must be in ownLabels.
func (r *registry) Register(cs ...prometheus.Collector) { r.tagged.MustRegister(cs...) }

func (r *registry) counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.Register(v)
	return v
}

func (r *registry) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.Register(v)
	return v
}

func (r *registry) counter(name, help string) prometheus.Counter {
	return r.counters(name, help).WithLabelValues()
}

func (r *registry) gauge(name, help string) prometheus.Gauge {
	return r.gauges(name, help).WithLabelValues()
}

// Value returns the value of a counter.
func Value(c prometheus.Counter) uint64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		return 0 // not a counter
	}
	return toUint(m.GetCounter().GetValue())
}

func gaugeValue(g prometheus.Gauge) float64 {
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		return 0 // not a gauge
	}
	return m.GetGauge().GetValue()
}
