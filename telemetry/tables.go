package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Table are the metrics of one table. Its fields may be used concurrently.
type Table struct {
	// Loads counts readings of its file that were put in force, Rejected those that were not. LastOK is 0 after one of these.
	Loads, Rejected prometheus.Counter
	LastOK          prometheus.Gauge
	// Put and Deleted count changes of single rows, and Unsaved is 1 while they are refused because they cannot be saved.
	Put, Deleted prometheus.Counter
	Unsaved      prometheus.Gauge
}

// Tables returns the metrics of tables by their names, and registers them: it is called once, where there are some. Rows is asked
// for how many rows each has.
func (m *Metrics) Tables(names []string, rows func(name string) int) map[string]*Table {
	loads := m.counters("sluice_table_loads_total", "Readings of the file of a table, by how they ended: loaded, or rejected, so that the rows in force stayed.", "table", "result")
	lastOK := m.gauges("sluice_table_last_load_successful", "1 if the rows in force are those of the table's file, 0 if that was rejected.", "table")
	changes := m.counters("sluice_table_changes_total", "Rows that were put or deleted one by one.", "table", "kind")
	unsaved := m.gauges("sluice_table_unsaved", "1 while changes of a table's rows are refused because they cannot be saved.", "table")
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
