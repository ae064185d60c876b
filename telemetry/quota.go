package telemetry

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Quota are the metrics of the rate limit quota service. The requests that Envoys admitted and
// denied count as hits of rules. The fields may be used concurrently.
type Quota struct {
	// Streams, Buckets and Shares are the current numbers.
	Streams, Buckets, Shares prometheus.Gauge
	Reports                  prometheus.Counter
	// Usages counts the elements of reports, each about one bucket.
	Usages prometheus.Counter
	// Unmatched counts usages of buckets that no rule divides, by the domain's name in metrics.
	Unmatched *prometheus.CounterVec
	// InvalidUTF8, TooLarge and TooManyBuckets count usages of buckets that get no assignment, by
	// the reason.
	InvalidUTF8, TooLarge, TooManyBuckets prometheus.Counter
	// Assigned, AllowAll, DenyAll and Abandoned count the actions that Envoys were sent.
	Assigned, AllowAll, DenyAll, Abandoned prometheus.Counter
	// DirectDescriptors counts descriptors of requests to the rate limit service that match rules
	// with quota.
	DirectDescriptors prometheus.Counter
	// LeaderDomains is the number of domains that this service divides.
	LeaderDomains prometheus.Gauge
	// MisdirectedStreams counts streams ended because this service does not divide their domain,
	// RejectedStreams those ended with another error.
	MisdirectedStreams, RejectedStreams prometheus.Counter
}

func newQuota(r *registry) Quota {
	ignored := r.counters("sluice_quota_ignored_usages_total",
		"Bucket usages in reports that get no assignment, by reason: the bucket ID is not valid UTF-8 (invalid_utf8), or has more than 1 KiB or 16 entries (too_large), or a bound on buckets is reached (too_many_buckets).", "reason")
	actions := r.counters("sluice_quota_actions_total",
		"Bucket actions sent to Envoys, by kind: an assignment of a share of the limit (token_bucket), of ALLOW_ALL (allow_all) or DENY_ALL (deny_all), or an abandon action (abandon).", "kind")
	return Quota{
		Streams:     r.gauge("sluice_quota_streams", "Open streams to the rate limit quota service: one for each Envoy and domain."),
		Buckets:     r.gauge("sluice_quota_buckets", "Buckets that Envoys have reported and not abandoned."),
		Shares:      r.gauge("sluice_quota_shares", "Shares: one for each bucket and each stream that reports the bucket."),
		Reports:     r.counter("sluice_quota_reports_total", "Reports received by the rate limit quota service."),
		Usages:      r.counter("sluice_quota_usages_total", "Bucket usages in reports."),
		Unmatched:   r.counters("sluice_quota_unmatched_usages_total", "Bucket usages in reports that no rule with quota matches.", "domain"),
		InvalidUTF8: ignored.WithLabelValues("invalid_utf8"), TooLarge: ignored.WithLabelValues("too_large"), TooManyBuckets: ignored.WithLabelValues("too_many_buckets"),
		Assigned: actions.WithLabelValues("token_bucket"), AllowAll: actions.WithLabelValues("allow_all"), DenyAll: actions.WithLabelValues("deny_all"), Abandoned: actions.WithLabelValues("abandon"),
		DirectDescriptors:  r.counter("sluice_quota_direct_descriptors_total", "Descriptors of requests to the rate limit service that match a rule with quota. Their counters are separate from the shares of Envoys."),
		LeaderDomains:      r.gauge("sluice_quota_leader_domains", "Domains whose limits this replica divides among Envoys. Without a store these are all domains with quota."),
		MisdirectedStreams: r.counter("sluice_quota_misdirected_streams_total", "Streams to the rate limit quota service that were ended because another replica divides the domain."),
		RejectedStreams:    r.counter("sluice_quota_rejected_streams_total", "Streams to the rate limit quota service that were ended with an error: the client may not use the domain, a report was invalid or late, messages were not received in time, or there were too many streams."),
	}
}

// SetAssignedRatio sets the part of a divided limit that is assigned to Envoys.
func (c *RuleCounters) SetAssignedRatio(ratio float64) {
	c.assignedRatio.Store(uint32(min(ratio*1e6, math.MaxUint32)))
}

var assignedMetric = ruleMetric{
	"sluice_quota_assigned_ratio",
	"Rate that is assigned to Envoys, divided by the limit, over all buckets of the rule; 0 without buckets. It exceeds 1 after a limit was lowered, until the Envoys have confirmed lower rates.",
	dto.MetricType_GAUGE,
	func(s *ruleSeries) (float64, bool) {
		return float64(s.counters.assignedRatio.Load()) / 1e6, s.limit.Divided
	},
}
