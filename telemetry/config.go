package telemetry

import "github.com/prometheus/client_golang/prometheus"

// configMetrics are the metrics of the active rules and their loads.
type configMetrics struct {
	loads, errors    prometheus.Counter
	info             *prometheus.GaugeVec
	lastLoad, lastOK prometheus.Gauge
	// added, removed and changed count rules.
	added, removed, changed prometheus.Counter
}

func newConfigMetrics(r *registry) configMetrics {
	changes := r.counters("sluice_config_changes_total", "Rules and domains that loads added, removed or changed, without the first load.", "kind")
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
