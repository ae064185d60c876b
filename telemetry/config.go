package telemetry

import "github.com/prometheus/client_golang/prometheus"

// configMetrics tell which rules are in force and how their loads went.
type configMetrics struct {
	loads, errors    prometheus.Counter
	info             *prometheus.GaugeVec
	lastLoad, lastOK prometheus.Gauge
}

func newConfigMetrics(m *Metrics) configMetrics {
	return configMetrics{
		info:     m.gauges("sluice_config_info", "1, with the fingerprint of the rules in force as label.", "hash"),
		loads:    m.counter("ratelimit_service_config_load_success", "Rule sets that were loaded."),
		errors:   m.counter("ratelimit_service_config_load_error", "Rule sets that were rejected; the previous one stayed."),
		lastLoad: m.gauge("sluice_config_last_load_timestamp_seconds", "When the rules in force were loaded, in Unix seconds; 0 before the first."),
		lastOK:   m.gauge("sluice_config_last_load_successful", "1 if the rules in force are what their source has, 0 if that was rejected."),
	}
}

// ConfigLoaded notes that the rules with the given fingerprint are in force
// since unixSeconds.
func (m *Metrics) ConfigLoaded(hash string, unixSeconds float64) {
	m.config.loads.Inc()
	m.config.info.Reset()
	m.config.info.WithLabelValues(hash).Set(1)
	m.config.lastLoad.Set(unixSeconds)
	m.config.lastOK.Set(1)
}

// ConfigRejected notes that a rule set was rejected.
func (m *Metrics) ConfigRejected() {
	m.config.errors.Inc()
	m.config.lastOK.Set(0)
}

// ConfigRestored notes that the source has the rules in force again.
func (m *Metrics) ConfigRestored() { m.config.lastOK.Set(1) }
