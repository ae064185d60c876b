package telemetry

import "github.com/prometheus/client_golang/prometheus"

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
	lastOK := m.gauges("sluice_table_last_load_successful", "1 if the rows of the table's file are active, 0 if the file was rejected.", "table")
	changes := m.counters("sluice_table_changes_total", "Rows that were put or deleted individually.", "table", "kind")
	unsaved := m.gauges("sluice_table_unsaved", "1 while changes of a table's rows are rejected because they cannot be saved.", "table")
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
