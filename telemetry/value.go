package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Value returns the value of a counter.
func Value(c prometheus.Counter) uint64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		return 0 // not a counter
	}
	return toUint(m.GetCounter().GetValue())
}

// gaugeValue returns the value of a gauge.
func gaugeValue(g prometheus.Gauge) float64 {
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		return 0 // not a gauge
	}
	return m.GetGauge().GetValue()
}
