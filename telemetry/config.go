package telemetry

import "github.com/prometheus/client_golang/prometheus"

// configMetrics tell which rules are in force and how their loads went.
type configMetrics struct {
	loads, errors    prometheus.Counter
	info             *prometheus.GaugeVec
	lastLoad, lastOK prometheus.Gauge
	// added, removed and changed are rules.
	added, removed, changed prometheus.Counter
}

func newConfigMetrics(r *registry) configMetrics {
	changes := r.counters("sluice_config_changes_total", "Rules and domains that loads have added, removed or changed; the first load does not count.", "kind")
	return configMetrics{
		info:     r.gauges("sluice_config_info", "1, with the fingerprint of the rules in force as label.", "hash"),
		loads:    r.counter("ratelimit_service_config_load_success", "Rule sets that were loaded."),
		errors:   r.counter("ratelimit_service_config_load_error", "Rule sets that were rejected; the previous one stayed."),
		lastLoad: r.gauge("sluice_config_last_load_timestamp_seconds", "When the rules in force were loaded, in Unix seconds; 0 before the first."),
		added:    changes.WithLabelValues("added"),
		removed:  changes.WithLabelValues("removed"),
		changed:  changes.WithLabelValues("changed"),
		lastOK:   r.gauge("sluice_config_last_load_successful", "1 if the rules in force are what their source has, 0 if that was rejected."),
	}
}

// ConfigLoaded notes that the rules with the given fingerprint are in force
// since unixSeconds.
func (c *configMetrics) ConfigLoaded(hash string, unixSeconds float64) {
	c.loads.Inc()
	c.info.Reset()
	c.info.WithLabelValues(hash).Set(1)
	c.lastLoad.Set(unixSeconds)
	c.lastOK.Set(1)
}

// ConfigChanged notes what a load has changed.
func (c *configMetrics) ConfigChanged(added, removed, changed int) {
	c.added.Add(float64(added))
	c.removed.Add(float64(removed))
	c.changed.Add(float64(changed))
}

// ConfigRejected notes that a rule set was rejected.
func (c *configMetrics) ConfigRejected() {
	c.errors.Inc()
	c.lastOK.Set(0)
}

// ConfigRestored notes that the source has the rules in force again.
func (c *configMetrics) ConfigRestored() { c.lastOK.Set(1) }
