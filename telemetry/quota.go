package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Quota are the metrics of the rate limit quota service. What Envoys admitted and denied counts as hits of rules. Its
// fields may be used concurrently.
type Quota struct {
	// Streams, Buckets and Shares are those of now.
	Streams, Buckets, Shares prometheus.Gauge
	Reports                  prometheus.Counter
	// Usages are elements of reports, each about one bucket.
	Usages prometheus.Counter
	// Unmatched are usages of buckets that no rule divides, by the domain's name in metrics.
	Unmatched *prometheus.CounterVec
	// NotText, TooLarge and NoRoom are usages of buckets that get no assignment: what their ids are, or a bound on
	// buckets.
	NotText, TooLarge, NoRoom prometheus.Counter
	// Assigned, AllowAll, DenyAll and Abandoned are what Envoys were told.
	Assigned, AllowAll, DenyAll, Abandoned prometheus.Counter
	// Called are descriptors of requests to the rate limit service that led to rules with quota.
	Called prometheus.Counter
	// Roles are domains that are divided here. Elsewhere are streams that were ended because they are not.
	Roles     prometheus.Gauge
	Elsewhere prometheus.Counter
	// Refused are streams that were ended with an error.
	Refused prometheus.Counter
}

func newQuota(r *registry) Quota {
	ignored := r.counters("sluice_quota_ignored_total",
		"Usages in reports of buckets that get no assignment, by reason: the id is no UTF-8 (text), or has more than 1 KiB or 16 entries (size), or a bound on buckets is reached (room).", "reason")
	told := r.counters("sluice_quota_actions_total",
		"What Envoys were told of buckets: a share of the limit (share), to let everything pass (allow_all) or nothing (deny_all), or to forget the bucket (abandon).", "kind")
	return Quota{
		Streams:   r.gauge("sluice_quota_streams", "Streams of Envoys to the rate limit quota service, one for each Envoy and domain."),
		Buckets:   r.gauge("sluice_quota_buckets", "Buckets that are divided."),
		Shares:    r.gauge("sluice_quota_shares", "Shares of buckets: of each bucket those of all streams that report it."),
		Reports:   r.counter("sluice_quota_reports_total", "Reports to the rate limit quota service."),
		Usages:    r.counter("sluice_quota_usages_total", "Usages in these reports, each of one bucket."),
		Unmatched: r.counters("sluice_quota_unmatched_total", "Usages in reports of buckets that no rule with quota matches.", "domain"),
		NotText:   ignored.WithLabelValues("text"), TooLarge: ignored.WithLabelValues("size"), NoRoom: ignored.WithLabelValues("room"),
		Assigned: told.WithLabelValues("share"), AllowAll: told.WithLabelValues("allow_all"), DenyAll: told.WithLabelValues("deny_all"), Abandoned: told.WithLabelValues("abandon"),
		Called:    r.counter("sluice_quota_called_total", "Descriptors of requests to the rate limit service that led to rules with quota: they are decided by counters of their own, beside what Envoys divide."),
		Roles:     r.gauge("sluice_quota_roles", "Domains whose limits this sluice divides: all with quota, or of several sluices with a store those whose role is its own."),
		Elsewhere: r.counter("sluice_quota_elsewhere_total", "Streams to the rate limit quota service that were ended because another sluice divides the domain."),
		Refused:   r.counter("sluice_quota_refused_total", "Streams to the rate limit quota service that were ended with an error: the domain is not theirs to ask for, a report cannot be read or does not come in time, messages are not taken in, or there are too many streams."),
	}
}

// InForce says which part of a limit that Envoys divide may be in force.
func (c *RuleCounters) InForce(part float64) { c.inForce.Store(int64(part * 1e6)) }

var inForceDesc = ruleDesc("sluice_quota_in_force_ratio", "The part of a limit that Envoys divide which may be in force at them, of all its buckets together; 0 without any. More than 1 after a limit was lowered, until that is confirmed.")

// collectQuota shows what may be in force of a limit that is divided.
func (s *ruleSeries) collectQuota(ch chan<- prometheus.Metric, labels []string) {
	if s.limit.Divided {
		ch <- prometheus.MustNewConstMetric(inForceDesc, prometheus.GaugeValue, float64(s.counters.inForce.Load())/1e6, labels...)
	}
}
