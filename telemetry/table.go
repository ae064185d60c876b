package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// TableStats is what a table of counters tells.
type TableStats struct {
	// Bytes of memory that counters may take, and that they take.
	Bytes, Used int64
	// Reclaimed is how many slots of expired counters were used again.
	Reclaimed uint64
	Classes   []ClassStats
}

// ClassStats is what a table tells of the counters of one size that share memory.
type ClassStats struct {
	// Domain is the one with max_counters that they are reserved for, or empty.
	Domain         string
	CounterBytes   int
	Capacity, Live int64
	Evicted        uint64
}

// WatchTable exposes a table's totals; read is called at each scrape.
func (m *Metrics) WatchTable(read func() TableStats) { m.Register(tableCollector{read}) }

type tableCollector struct{ read func() TableStats }

// classLabels are the domain with max_counters, empty for all others, and the bytes of a
// counter.
var classLabels = []string{"domain", "counter_bytes"}

var (
	capacityDesc = prometheus.NewDesc("sluice_counters_capacity", "Counters of a size that there could be if those of other sizes stayed as they are; for a domain with max_counters, that bound.", classLabels, nil)
	liveDesc     = prometheus.NewDesc("sluice_counters_live", "Counters of a size that could still change a decision; an estimate, to about a percent, above a quarter of a million, and beyond 128MiB of a size.", classLabels, nil)
	evictedDesc  = prometheus.NewDesc("sluice_counters_evicted_total", "Live counters of a size that were dropped because the memory was full.", classLabels, nil)

	bytesDesc     = prometheus.NewDesc("sluice_counters_bytes", "Memory that counters may take.", nil, nil)
	usedDesc      = prometheus.NewDesc("sluice_counters_used_bytes", "Memory that counters take.", nil, nil)
	reclaimedDesc = prometheus.NewDesc("sluice_counters_reclaimed_total", "Slots of expired counters that were used again.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c tableCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements [prometheus.Collector].
func (c tableCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.read()
	for _, class := range s.Classes {
		labels := []string{class.Domain, strconv.Itoa(class.CounterBytes)}
		ch <- prometheus.MustNewConstMetric(capacityDesc, prometheus.GaugeValue, float64(class.Capacity), labels...)
		ch <- prometheus.MustNewConstMetric(liveDesc, prometheus.GaugeValue, float64(class.Live), labels...)
		ch <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(class.Evicted), labels...)
	}
	ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, float64(s.Bytes))
	ch <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, float64(s.Used))
	ch <- prometheus.MustNewConstMetric(reclaimedDesc, prometheus.CounterValue, float64(s.Reclaimed))
}
