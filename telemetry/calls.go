package telemetry

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// codeNames are the names of the gRPC status codes, by number.
var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// methodNames are the methods of the gRPC server, without their services.
var methodNames = [...]string{
	"ShouldRateLimit", "Check", "List", "Watch", "ServerReflectionInfo", "StreamRateLimitQuotas",
}

// responseTimeBuckets are upper bounds in seconds. They start at 10 us, since a decision takes
// microseconds; from 5 ms they are those of envoyproxy/ratelimit.
var responseTimeBuckets = append([]float64{10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3},
	prometheus.DefBuckets...)

const responseTime = "ratelimit_service_response_time_seconds"

// Calls count gRPC calls by method. Requests to /json count as ShouldRateLimit.
type Calls struct {
	// ShouldRateLimit is the method that decides requests.
	ShouldRateLimit *Method
	// Denied counts calls of ShouldRateLimit that were answered OVER_LIMIT.
	Denied prometheus.Counter

	methods map[string]*Method
	// unit is the unit of response times.
	unit time.Duration
}

// Method counts the calls of one method. Its methods may be called concurrently. They look up a
// label only for the first call with a status code.
type Method struct {
	// Requests counts calls at their start.
	Requests prometheus.Counter

	times prometheus.ObserverVec
	// byCode contains a histogram for each status code that has occurred; the others have no
	// series.
	byCode [len(codeNames)]atomic.Pointer[prometheus.Observer]
	// unit is the unit of the response time, in nanoseconds.
	unit float64
}

func newCalls(r *registry, milliseconds bool) *Calls {
	requests := r.counters("ratelimit_service_total_requests",
		"Calls by method, including health and reflection; /json counts as ShouldRateLimit.", "grpc_method")
	unit := time.Second
	help := "Time from reading a request to writing its response, by method and gRPC status code, without the delay by a leaky bucket."
	buckets := responseTimeBuckets
	if milliseconds {
		unit = time.Millisecond
		help += " In MILLISECONDS, because of PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS."
		buckets = make([]float64, len(buckets))
		for i, b := range responseTimeBuckets {
			buckets[i] = b * 1e3
		}
	}
	times := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: responseTime, Help: help, Buckets: buckets,
		// Also a native histogram, for servers that ask for it: its buckets differ by 10 %.
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{"grpc_method", "code"})
	r.Register(times)
	c := &Calls{methods: map[string]*Method{}, unit: unit}
	c.Denied = r.counter("sluice_denied_requests_total",
		"Calls of ShouldRateLimit that were answered OVER_LIMIT. /json counts too.")
	for _, name := range methodNames {
		c.methods[name] = &Method{
			Requests: requests.WithLabelValues(name),
			times:    times.MustCurryWith(prometheus.Labels{"grpc_method": name}),
			unit:     float64(unit),
		}
	}
	c.ShouldRateLimit = c.methods[methodNames[0]]
	c.ShouldRateLimit.observer(0) // so that the series exists before the first call
	return c
}

// Method returns the metrics of a method, given without its service, or nil if there is no such
// method.
func (c *Calls) Method(name string) *Method { return c.methods[name] }

// Done records that a call was answered with a gRPC status code after the given time.
func (m *Method) Done(code uint32, took time.Duration) {
	if code >= uint32(len(codeNames)) {
		code = 2 // UNKNOWN, as gRPC has it
	}
	observer := m.byCode[code].Load()
	if observer == nil {
		observer = m.observer(code)
	}
	(*observer).Observe(float64(took) / m.unit)
}

func (m *Method) observer(code uint32) *prometheus.Observer {
	o := m.times.WithLabelValues(codeNames[code])
	m.byCode[code].Store(&o)
	return &o
}

// CallTotals describe the calls of ShouldRateLimit since the start of the process.
type CallTotals struct {
	// Calls counts answered calls, Denied those answered OVER_LIMIT, and Errors those answered with
	// an error. Calls that the client canceled are not errors.
	Calls, Denied, Errors uint64
	// Buckets counts calls by response time, cumulatively, with the upper bounds [ResponseTimeBounds].
	Buckets []uint64
}

// ResponseTimeBounds returns the upper bounds of the buckets of response times, in seconds.
func ResponseTimeBounds() []float64 { return slices.Clone(responseTimeBuckets) }

// Totals returns the totals of ShouldRateLimit.
func (c *Calls) Totals() CallTotals {
	t := CallTotals{Denied: Value(c.Denied), Buckets: make([]uint64, len(responseTimeBuckets))}
	for code := range codeNames {
		observer := c.ShouldRateLimit.byCode[code].Load()
		if observer == nil {
			continue
		}
		var m dto.Metric
		histogram, ok := (*observer).(prometheus.Metric)
		if !ok || histogram.Write(&m) != nil {
			continue // not a histogram
		}
		n := m.GetHistogram().GetSampleCount()
		t.Calls += n
		if name := codeNames[code]; name != "OK" && name != "CANCELLED" {
			t.Errors += n
		}
		for i, b := range m.GetHistogram().GetBucket() {
			t.Buckets[i] += b.GetCumulativeCount()
		}
	}
	return t
}
