package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are all metrics of one process. Its fields may be used concurrently.
type Metrics struct {
	// Registry is what /metrics serves.
	Registry *prometheus.Registry
	Rules    *Rules

	// Requests counts ShouldRateLimit calls, over gRPC and /json alike.
	Requests prometheus.Counter
	// ResponseTime is the time from a request's bytes to its reply's, in seconds.
	ResponseTime prometheus.Observer
	// ServiceErrors counts requests that were answered with an error.
	ServiceErrors prometheus.Counter
	// GlobalShadow counts requests that only the global shadow mode let pass.
	GlobalShadow prometheus.Counter
	// UnknownDomain counts descriptors of requests for a domain without rules.
	UnknownDomain prometheus.Counter
	// IgnoredOverrides counts descriptors whose own limit could not be used.
	IgnoredOverrides prometheus.Counter
	// RefundedHits counts hits that were given back.
	RefundedHits prometheus.Counter
	// WaitedCalls counts calls whose reply was held, WaitingCalls are those held
	// now, CancelledWaits those whose caller went away first.
	WaitedCalls    prometheus.Counter
	WaitingCalls   prometheus.Gauge
	CancelledWaits prometheus.Counter
	// Panics counts requests that were answered INTERNAL because of a bug.
	Panics prometheus.Counter
	// RefusedConnections counts connections beyond the limit on them.
	RefusedConnections prometheus.Counter

	// ConfigLoads and ConfigErrors count rule sets that were taken and refused.
	ConfigLoads, ConfigErrors prometheus.Counter
	configInfo                *prometheus.GaugeVec
	configLastLoad            prometheus.Gauge
	configLastOK              prometheus.Gauge

	tls tlsMetrics
}

// New returns the metrics, with those of Go and the process.
func New() *Metrics {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		reg.MustRegister(g)
		return g
	}
	//nolint:promlinter // the name that envoyproxy/ratelimit has
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimit_service_total_requests", Help: "Requests by method.",
	}, []string{"grpc_method"})
	responseTime := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ratelimit_service_response_time_seconds",
		Help: "Time from a request's bytes to its reply's, by method.",
		// 1 us to 1 s: a decision takes microseconds, a late one shows a starved CPU.
		Buckets: []float64{1e-6, 2e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 5e-3, 25e-3, 100e-3, 1},
	}, []string{"grpc_method"})
	//nolint:promlinter // the name that envoyproxy/ratelimit has
	errors := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimit_service_should_rate_limit_error", Help: "Requests answered with an error, by kind.",
	}, []string{"err_type"})
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_config_info", Help: "1, with the fingerprint of the rules in force as label.",
	}, []string{"hash"})
	reg.MustRegister(requests, responseTime, errors, info)
	return &Metrics{
		tls:                newTLSMetrics(reg),
		Registry:           reg,
		Rules:              NewRules(reg),
		Requests:           requests.WithLabelValues("ShouldRateLimit"),
		ResponseTime:       responseTime.WithLabelValues("ShouldRateLimit"),
		ServiceErrors:      errors.WithLabelValues("service_error"),
		GlobalShadow:       counter("ratelimit_service_global_shadow_mode", "Requests over limit that only the global shadow mode let pass."),
		UnknownDomain:      counter("sluice_unknown_domain_total", "Descriptors of requests for a domain without rules."),
		IgnoredOverrides:   counter("sluice_ignored_overrides_total", "Descriptors whose own limit had an unusable unit or window; the configured limit held."),
		RefundedHits:       counter("sluice_refunded_hits_total", "Hits that were given back."),
		WaitedCalls:        counter("sluice_waited_calls_total", "Calls whose reply was held by a leaky bucket."),
		WaitingCalls:       gauge("sluice_waiting_calls", "Calls whose reply is held now."),
		CancelledWaits:     counter("sluice_cancelled_waits_total", "Held calls whose caller went away first."),
		Panics:             counter("sluice_panics_total", "Requests answered INTERNAL because of a bug in sluice."),
		RefusedConnections: counter("sluice_refused_connections_total", "gRPC connections closed at once because the limit on connections was reached."),
		ConfigLoads:        counter("ratelimit_service_config_load_success", "Rule sets that were loaded."),
		ConfigErrors:       counter("ratelimit_service_config_load_error", "Rule sets that were refused; the previous one stayed."),
		configInfo:         info,
		configLastLoad:     gauge("sluice_config_last_load_timestamp_seconds", "When the rules in force were loaded, in Unix seconds."),
		configLastOK:       gauge("sluice_config_last_load_successful", "1 if the files on disk are the rules in force, 0 if they were refused."),
	}
}

// ConfigLoaded notes that the rules with the given fingerprint are in force
// since unixSeconds.
func (m *Metrics) ConfigLoaded(hash string, unixSeconds float64) {
	m.ConfigLoads.Inc()
	m.configInfo.Reset()
	m.configInfo.WithLabelValues(hash).Set(1)
	m.configLastLoad.Set(unixSeconds)
	m.configLastOK.Set(1)
}

// ConfigRefused notes that a rule set was refused.
func (m *Metrics) ConfigRefused() {
	m.ConfigErrors.Inc()
	m.configLastOK.Set(0)
}

// ConfigRestored notes that the files on disk are again the rules in force.
func (m *Metrics) ConfigRestored() { m.configLastOK.Set(1) }

// TableStats is what a table of counters tells.
type TableStats struct {
	Capacity, Bytes, Live int64
	Reclaimed, GivenUp    uint64
}

// WatchTable exposes a table's totals; read is called at each scrape.
func (m *Metrics) WatchTable(read func() TableStats) {
	m.Registry.MustRegister(tableCollector{read})
}

type tableCollector struct{ read func() TableStats }

var (
	capacityDesc  = prometheus.NewDesc("sluice_counters_capacity", "Counters of one word that fit.", nil, nil)
	bytesDesc     = prometheus.NewDesc("sluice_counters_bytes", "Memory reserved for counters.", nil, nil)
	liveDesc      = prometheus.NewDesc("sluice_counters_live", "Counters that could still change a decision.", nil, nil)
	reclaimedDesc = prometheus.NewDesc("sluice_counters_reclaimed_total", "Slots of expired counters that were used again.", nil, nil)
	givenUpDesc   = prometheus.NewDesc("sluice_counters_given_up_total", "Live counters that were forgotten because the memory was full.", nil, nil)
)

func (tableCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{capacityDesc, bytesDesc, liveDesc, reclaimedDesc, givenUpDesc} {
		ch <- d
	}
}

func (c tableCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.read()
	ch <- prometheus.MustNewConstMetric(capacityDesc, prometheus.GaugeValue, float64(s.Capacity))
	ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, float64(s.Bytes))
	ch <- prometheus.MustNewConstMetric(liveDesc, prometheus.GaugeValue, float64(s.Live))
	ch <- prometheus.MustNewConstMetric(reclaimedDesc, prometheus.CounterValue, float64(s.Reclaimed))
	ch <- prometheus.MustNewConstMetric(givenUpDesc, prometheus.CounterValue, float64(s.GivenUp))
}
