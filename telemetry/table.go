package telemetry

import "github.com/prometheus/client_golang/prometheus"

// TableStats is what a table of counters tells.
type TableStats struct {
	Capacity, Bytes, Live int64
	Reclaimed, Evicted    uint64
}

// WatchTable exposes a table's totals; read is called at each scrape.
func (m *Metrics) WatchTable(read func() TableStats) { m.Register(tableCollector{read}) }

type tableCollector struct{ read func() TableStats }

var (
	capacityDesc  = prometheus.NewDesc("sluice_counters_capacity", "Counters that fit, of all sizes.", nil, nil)
	bytesDesc     = prometheus.NewDesc("sluice_counters_bytes", "Memory reserved for counters.", nil, nil)
	liveDesc      = prometheus.NewDesc("sluice_counters_live", "Counters that could still change a decision; an estimate, to about a percent, above a quarter of a million, and beyond 128MiB of a size.", nil, nil)
	reclaimedDesc = prometheus.NewDesc("sluice_counters_reclaimed_total", "Slots of expired counters that were used again.", nil, nil)
	evictedDesc   = prometheus.NewDesc("sluice_counters_evicted_total", "Live counters that were dropped because the memory was full.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c tableCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements [prometheus.Collector].
func (c tableCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.read()
	ch <- prometheus.MustNewConstMetric(capacityDesc, prometheus.GaugeValue, float64(s.Capacity))
	ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, float64(s.Bytes))
	ch <- prometheus.MustNewConstMetric(liveDesc, prometheus.GaugeValue, float64(s.Live))
	ch <- prometheus.MustNewConstMetric(reclaimedDesc, prometheus.CounterValue, float64(s.Reclaimed))
	ch <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(s.Evicted))
}
