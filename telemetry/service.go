package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Options say how metrics look. The zero value is ready to use.
type Options struct {
	// Tags are labels that every series has: see [CheckTags].
	Tags []Tag
	// Milliseconds has the response time measured in milliseconds, though its name says
	// seconds, as older versions of envoyproxy/ratelimit did.
	Milliseconds bool
	// Build is shown by sluice_build_info.
	Build Build
	// Started is when the process began.
	Started time.Time
}

// Build says what a program was built from. What the build did not record is empty.
type Build struct {
	Version    string `json:"version"`
	Revision   string `json:"revision"`    // the commit
	CommitDate string `json:"commit_date"` // as RFC 3339 has it
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	// FIPS is the version of the FIPS 140-3 module that all cryptography is done by; empty without one.
	FIPS string `json:"fips,omitempty"`
}

// Metrics are all metrics of one process. Its fields may be used concurrently.
type Metrics struct {
	registry
	configMetrics
	carriers

	Rules *Rules
	Calls *Calls
	// TLS returns the metrics of the use of TLS files that has that name, such as "grpc".
	TLS func(use string) *TLS

	// The help of each, in New, says what it counts.
	ServiceErrors, StoreErrors, GlobalShadow, IgnoredOverrides prometheus.Counter
	RefundedHits, CounterResets                                prometheus.Counter
	WaitedCalls, CancelledWaits                                prometheus.Counter
	WaitingCalls                                               prometheus.Gauge
	Panics, RejectedConnections                                prometheus.Counter
	Ended                                                      Ended
	Rejected                                                   Rejected
	Leases                                                     Leases
	Quota                                                      Quota
	DebugDenied                                                DebugDenied
	TokenFile                                                  TokenFile
	UnknownDomains                                             *UnknownDomains
	Events                                                     *Events
	Conditions                                                 *Conditions
	ClientErrors                                               ClientErrors
	// Build is that of the options, and Started when the process began.
	Build   Build
	Started time.Time
}

// New returns the metrics, with those of Go and the process. It returns an error
// if the tags cannot be labels.
func New(o Options) (*Metrics, error) {
	labels, err := tagLabels(o.Tags)
	if err != nil {
		return nil, err
	}
	m := &Metrics{registry: newRegistry(labels), Rules: newRules(), Conditions: newConditions(), Build: o.Build, Started: o.Started}
	m.Events, m.ClientErrors = newEvents(m.Conditions), newClientErrors(m.Conditions)
	r := &m.registry
	r.Register(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), rulesCollector{m.Rules})
	m.Calls = newCalls(r, o.Milliseconds)
	m.configMetrics = newConfigMetrics(r)
	m.TLS = newTLSMetrics(r)

	m.gauges("sluice_build_info", "1, with what was built as labels; revision and commit_date are empty where the build did not record them.",
		"version", "revision", "commit_date", "goversion").
		WithLabelValues(o.Build.Version, o.Build.Revision, o.Build.CommitDate, o.Build.Go).Set(1)
	errors := m.counters("ratelimit_service_should_rate_limit_error", "Requests answered with an error, by kind: redis_error if a store, of whichever kind, did not decide.", "err_type")
	m.ServiceErrors, m.StoreErrors = errors.WithLabelValues("service_error"), errors.WithLabelValues("redis_error")
	m.GlobalShadow = m.counter("ratelimit_service_global_shadow_mode", "Requests over limit that only the global shadow mode let pass.")
	m.UnknownDomains = newUnknownDomains(r)
	m.IgnoredOverrides = m.counter("sluice_ignored_overrides_total", "Descriptors whose own limit had an unusable unit or window; the configured limit held.")
	m.RefundedHits = m.counter("sluice_refunded_hits_total", "Hits that refunds took off counters. A refund takes no more than was used.")
	m.WaitedCalls = m.counter("sluice_waited_calls_total", "Calls whose reply was held by a leaky bucket.")
	m.WaitingCalls = m.gauge("sluice_waiting_calls", "Calls whose reply is held now.")
	m.CancelledWaits = m.counter("sluice_cancelled_waits_total", "Held calls whose caller went away first.")
	m.Panics = m.counter("sluice_panics_total", "Requests answered INTERNAL because of a bug in sluice, or decided by the fallback of a store.")
	m.Rejected = newRejected(r)
	m.Leases = newLeases(r)
	m.Quota = newQuota(r)
	m.DebugDenied = newDebugDenied(r)
	m.TokenFile = newTokenFile(r)
	m.RejectedConnections = m.counter("sluice_rejected_connections_total", "Connections, over gRPC or HTTP, closed because the limit on them was reached.")
	m.Conditions.WhileGrows(ConnectionsRejected, func() uint64 { return Value(m.RejectedConnections) })
	m.Ended = newEnded(r)
	m.carriers = newCarriers(r)
	m.CounterResets = m.counter("sluice_resets_total", "Counters that an operator reset by hand.")
	return m, nil
}
