package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Options configure metrics. The zero value is valid.
type Options struct {
	// Tags are labels of every series; see [CheckTags].
	Tags []Tag
	// Milliseconds makes the response time a number of milliseconds, although its name ends in
	// seconds, as in older versions of envoyproxy/ratelimit.
	Milliseconds bool
	// Build is the content of sluice_build_info.
	Build Build
	// Started is the start time of the process.
	Started time.Time
}

// Build describes the build of the program. Fields that the build did not record are empty.
type Build struct {
	Version    string `json:"version"`
	Revision   string `json:"revision"`    // the commit
	CommitDate string `json:"commit_date"` // in RFC 3339
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	// FIPS is the version of the FIPS 140-3 module that is used for all cryptography; empty without
	// one.
	FIPS string `json:"fips,omitempty"`
}

// Metrics are all metrics of one process. The fields may be used concurrently.
type Metrics struct {
	registry
	configMetrics
	transportMetrics

	Rules *Rules
	Calls *Calls
	// TLS returns the metrics of a use of TLS files, such as "grpc".
	TLS func(use string) *TLS

	// The help texts in New describe these.
	ServiceErrors, StoreErrors, GlobalShadow, IgnoredOverrides, NotAddresses, ExemptRequests, NoticesDropped prometheus.Counter
	RefundedHits, CounterResets                                                                              prometheus.Counter
	UnmaskedUntil                                                                                            prometheus.Gauge
	DelayedResponses, CancelledDelays                                                                        prometheus.Counter
	PendingDelays, CountsAlone, ShadowMode                                                                   prometheus.Gauge
	Panics, RejectedConnections                                                                              prometheus.Counter
	ClosedConnections                                                                                        ClosedConnections
	Rejected                                                                                                 Rejected
	Leases                                                                                                   Leases
	Quota                                                                                                    Quota
	DebugDenied                                                                                              DebugDenied
	TokenFile                                                                                                TokenFile
	UnknownDomains                                                                                           *UnknownDomains
	Events                                                                                                   *Events
	Conditions                                                                                               *Conditions
	ClientErrors                                                                                             ClientErrors
	Build                                                                                                    Build
	Started                                                                                                  time.Time

	readTable func() TableStats // nil before WatchTable
}

// New returns the metrics, including those of Go and the process. It returns an error if the tags
// cannot be labels.
func New(o Options) (*Metrics, error) {
	labels, err := tagLabels(o.Tags)
	if err != nil {
		return nil, err
	}
	rules := newRules(labels)
	m := &Metrics{
		registry: newRegistry(rules), Rules: rules, Conditions: newConditions(), Build: o.Build, Started: o.Started,
	}
	m.Events = newEvents(m.Conditions)
	m.ClientErrors = newClientErrors(m.Conditions)
	r := &m.registry
	r.Register(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		rulesCollector{rules})
	m.Calls = newCalls(r, o.Milliseconds)
	m.configMetrics = newConfigMetrics(r)
	m.TLS = newTLSMetrics(r)

	m.gauges("sluice_build_info", "Always 1; the labels describe the build. revision and commit_date are empty if the build did not record them.",
		"version", "revision", "commit_date", "goversion").
		WithLabelValues(o.Build.Version, o.Build.Revision, o.Build.CommitDate, o.Build.Go).Set(1)
	errors := m.counters("ratelimit_service_should_rate_limit_error",
		"Requests answered with an error, by kind: redis_error if a store, of any kind, did not decide.", "err_type")
	m.ServiceErrors = errors.WithLabelValues("service_error")
	m.StoreErrors = errors.WithLabelValues("redis_error")
	m.GlobalShadow = m.counter("ratelimit_service_global_shadow_mode",
		"Requests over a limit that were allowed only because of the global shadow mode.")
	m.UnknownDomains = newUnknownDomains(r)
	m.NotAddresses = m.counter("sluice_values_not_addresses_total", "Values of descriptors that were compared with ranges of addresses (cidr) but are not addresses, so that no range matched.")
	m.NoticesDropped = m.counter("sluice_limit_notices_dropped_total",
		"Notices that are not in the log, because there were more than a hundred in a second.")
	m.ExemptRequests = m.counter("sluice_exempt_requests_total",
		"Requests that the field exempt of their domain let pass without charging.")
	m.IgnoredOverrides = m.counter("sluice_ignored_overrides_total", "Limit overrides in descriptors that were ignored because of an invalid unit or window; the configured limit applied.")
	m.RefundedHits = m.counter("sluice_refunded_hits_total",
		"Hits that refunds subtracted from counters. A refund subtracts at most the used hits.")
	m.DelayedResponses = m.counter("sluice_delayed_responses_total", "Responses that were delayed by a leaky bucket.")
	m.PendingDelays = m.gauge("sluice_delayed_responses_pending",
		"Responses that are currently delayed by a leaky bucket.")
	m.CountsAlone = m.gauge("sluice_counts_alone", "1 if other replicas do not share the counters: they are in memory, and --sharded is not set. Each such replica grants the complete limit.")
	m.ShadowMode = m.gauge("sluice_shadow_mode", "1 with --shadow-mode: every request is allowed.")
	m.CancelledDelays = m.counter("sluice_delayed_responses_cancelled_total",
		"Delayed responses whose client cancelled the call or disconnected.")
	m.Panics = m.counter("sluice_panics_total", "Panics, each a bug in sluice. The request was answered with INTERNAL, or decided by the fallback of the store.")
	m.UnmaskedUntil = m.gauge("sluice_keys_unmasked_until_timestamp_seconds",
		"Until when values of denied keys are shown because of /api/v1/unmask, in Unix seconds; 0 if they are not.")
	m.Rejected = newRejected(r)
	m.Leases = newLeases(r)
	m.Quota = newQuota(r)
	m.DebugDenied = newDebugDenied(r)
	m.TokenFile = newTokenFile(r)
	m.RejectedConnections = m.counter("sluice_rejected_connections_total",
		"gRPC and HTTP connections that were closed because the bound on connections was reached.")
	m.Conditions.WhileGrows(ConnectionsRejected, func() uint64 { return Value(m.RejectedConnections) })
	m.ClosedConnections = newClosedConnections(r)
	m.transportMetrics = newTransportMetrics(r)
	m.CounterResets = m.counter("sluice_resets_total", "Counters that an operator reset.")
	return m, nil
}
