package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// TableStats are the statistics of a table of counters.
type TableStats struct {
	// Bytes is the memory limit of counters, Used the memory in use.
	Bytes, Used int64
	// Reclaimed is the number of slots of expired counters that were reused.
	Reclaimed uint64
	Classes   []ClassStats
}

// ClassStats are the statistics of a size class.
type ClassStats struct {
	// Domain is the domain with max_counters that the class is reserved for, or empty.
	Domain         string
	CounterBytes   int
	Capacity, Live int64
	Evicted        uint64
}

// WatchTable registers the metrics of a table. read is called at each scrape, and by
// [Metrics.Table]. WatchTable must be called before the metrics are read, and only once.
func (m *Metrics) WatchTable(read func() TableStats) {
	m.readTable = read
	m.Register(tableCollector{read})
}

// Table returns the statistics of the table of [Metrics.WatchTable]. A call takes milliseconds.
func (m *Metrics) Table() TableStats {
	if m.readTable == nil {
		return TableStats{}
	}
	return m.readTable()
}

type tableCollector struct{ read func() TableStats }

// classLabels are the domain with max_counters, empty for all others, and the size of a counter in
// bytes.
var classLabels = []string{"domain", "counter_bytes"}

var (
	capacityDesc = prometheus.NewDesc("sluice_counters_capacity", "Counters of a size that fit into the memory if those of other sizes do not change; for a domain with max_counters, that bound.", classLabels, nil)
	liveDesc     = prometheus.NewDesc("sluice_counters_live", "Counters of a size that can still affect a decision. Above 250,000 counters, or 128 MiB of a size, it is an estimate to about 1 %.", classLabels, nil)
	evictedDesc  = prometheus.NewDesc("sluice_counters_evicted_total", "Live counters of a size that were evicted because the memory was full.", classLabels, nil)

	bytesDesc     = prometheus.NewDesc("sluice_counters_max_bytes", "Memory limit of counters.", nil, nil)
	usedDesc      = prometheus.NewDesc("sluice_counters_used_bytes", "Memory in use by counters.", nil, nil)
	reclaimedDesc = prometheus.NewDesc("sluice_counters_reclaimed_total", "Slots of expired counters that were reused.", nil, nil)
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

// State are the metrics of the state file. The fields may be used concurrently.
type State struct {
	// Loaded is 1 if the process started with the counters of the file.
	Loaded prometheus.Gauge
	// Saved is the time of the last save, in Unix seconds, Seconds its duration, and Bytes the size
	// of the file.
	Saved, Seconds, Bytes prometheus.Gauge
	// Errors counts failures.
	Errors prometheus.Counter
}

// State registers and returns the metrics of the state file. It may be called only once.
func (m *Metrics) State() *State {
	return &State{
		Loaded:  m.gauge("sluice_state_loaded", "1 if this process started with the counters of the state file, 0 otherwise."),
		Saved:   m.gauge("sluice_state_last_save_timestamp_seconds", "Unix time of the last save of counters to the state file; 0 before the first."),
		Seconds: m.gauge("sluice_state_last_save_duration_seconds", "Duration of the last save to the state file."),
		Bytes:   m.gauge("sluice_state_file_bytes", "Size of the state file."),
		Errors:  m.counter("sluice_state_errors_total", "Failures to load or save the state file."),
	}
}
