package telemetry

import "github.com/prometheus/client_golang/prometheus"

type configMetrics struct {
	loads, errors    prometheus.Counter
	info             *prometheus.GaugeVec
	lastLoad, lastOK prometheus.Gauge
	// added, removed and changed count rules.
	added, removed, changed prometheus.Counter
}

func newConfigMetrics(r *registry) configMetrics {
	changes := r.counters("sluice_config_changes_total",
		"Rules and domains that loads added, removed or changed, without the first load.", "kind")
	return configMetrics{
		info:     r.gauges("sluice_config_info", "Always 1; the label is the hash of the active rules.", "hash"),
		loads:    r.counter("ratelimit_service_config_load_success", "Rule sets that were loaded successfully."),
		errors:   r.counter("ratelimit_service_config_load_error", "Rule sets that were rejected; the previous rules stayed active."),
		lastLoad: r.gauge("sluice_config_last_load_timestamp_seconds", "Unix time when the active rules were loaded; 0 without rules."),
		added:    changes.WithLabelValues("added"),
		removed:  changes.WithLabelValues("removed"),
		changed:  changes.WithLabelValues("changed"),
		lastOK:   r.gauge("sluice_config_last_load_successful", "1 if the last rules of the source are active, 0 if they were rejected."),
	}
}

// ConfigLoaded records that rules with the given hash are active since unixSeconds.
func (c *configMetrics) ConfigLoaded(hash string, unixSeconds float64) {
	c.loads.Inc()
	c.info.Reset()
	c.info.WithLabelValues(hash).Set(1)
	c.lastLoad.Set(unixSeconds)
	c.lastOK.Set(1)
}

// ConfigChanged records the changes of a load.
func (c *configMetrics) ConfigChanged(added, removed, changed int) {
	c.added.Add(float64(added))
	c.removed.Add(float64(removed))
	c.changed.Add(float64(changed))
}

// ConfigRejected records that a rule set was rejected.
func (c *configMetrics) ConfigRejected() {
	c.errors.Inc()
	c.lastOK.Set(0)
}

// ConfigRestored records that the rules of the source are the active ones again.
func (c *configMetrics) ConfigRestored() { c.lastOK.Set(1) }

// Table are the metrics of one table. The fields may be used concurrently.
type Table struct {
	// Loads counts successful loads of its file, Rejected failed ones. LastOK is 0 after a failed
	// load.
	Loads, Rejected prometheus.Counter
	LastOK          prometheus.Gauge
	// Put and Deleted count changes of single rows. Unsaved is 1 while changes are rejected because
	// they cannot be saved.
	Put, Deleted prometheus.Counter
	Unsaved      prometheus.Gauge
}

// Tables registers the metrics of tables and returns them by name. It may be called only once. rows
// returns the number of rows of a table.
func (m *Metrics) Tables(names []string, rows func(name string) int) map[string]*Table {
	loads := m.counters("sluice_table_loads_total", "Loads of a table's file, by result: loaded, or rejected, so that the previous rows stayed active.", "table", "result")
	lastOK := m.gauges("sluice_table_last_load_successful",
		"1 if the rows of the table's file are active, 0 if the file was rejected.", "table")
	changes := m.counters("sluice_table_changes_total", "Rows that were put or deleted individually.", "table", "kind")
	unsaved := m.gauges("sluice_table_unsaved",
		"1 while changes of a table's rows are rejected because they cannot be saved.", "table")
	all := map[string]*Table{}
	for _, name := range names {
		all[name] = &Table{
			Loads: loads.WithLabelValues(name, "loaded"), Rejected: loads.WithLabelValues(name, "rejected"), LastOK: lastOK.WithLabelValues(name),
			Put: changes.WithLabelValues(name, "put"), Deleted: changes.WithLabelValues(name, "deleted"), Unsaved: unsaved.WithLabelValues(name),
		}
		m.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_table_rows", Help: "Rows of a table.", ConstLabels: prometheus.Labels{"table": name},
		}, func() float64 { return float64(rows(name)) }))
	}
	return all
}

// XDS are the metrics of the management server that rules come from. The fields may be used
// concurrently.
type XDS struct {
	// Connected is 1 while a stream is open.
	Connected prometheus.Gauge
	// ACKs and NACKs count accepted and rejected responses.
	ACKs, NACKs prometheus.Counter
}

// XDS registers and returns the metrics of the management server. It may be called only once.
func (m *Metrics) XDS() *XDS {
	connected := m.gauge("sluice_xds_connected",
		"1 while a stream from the management server is open; otherwise the rules do not change.")
	updates := m.counters("sluice_xds_updates_total",
		"Responses of the management server, by result: accepted (ack) or rejected (nack).", "result")
	return &XDS{Connected: connected, ACKs: updates.WithLabelValues("ack"), NACKs: updates.WithLabelValues("nack")}
}
