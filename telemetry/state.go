package telemetry

import "github.com/prometheus/client_golang/prometheus"

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
