package telemetry

import "github.com/prometheus/client_golang/prometheus"

// State are the metrics of the state file. Its fields may be used concurrently.
type State struct {
	// Loaded is 1 if the process began with the counters of the file.
	Loaded prometheus.Gauge
	// Saved is when counters were last saved, in Unix seconds, Seconds how long that took,
	// and Bytes the length of the file.
	Saved, Seconds, Bytes prometheus.Gauge
	// Errors counts what failed.
	Errors prometheus.Counter
}

// State returns the metrics of the state file, and registers them: it is called once, where
// there is to be one.
func (m *Metrics) State() *State {
	return &State{
		Loaded:  m.gauge("sluice_state_loaded", "1 if this process began with the counters of the state file, 0 if it began without."),
		Saved:   m.gauge("sluice_state_saved_timestamp_seconds", "When counters were last saved to the state file, in Unix seconds; 0 before the first time."),
		Seconds: m.gauge("sluice_state_save_seconds", "How long the last save to the state file took."),
		Bytes:   m.gauge("sluice_state_bytes", "Size of the state file."),
		Errors:  m.counter("sluice_state_errors_total", "Failures of the state file: it could not be used at the start, or saving to it failed."),
	}
}
