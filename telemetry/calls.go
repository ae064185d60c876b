package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// codeNames are the gRPC status codes by their numbers.
var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// methodNames are the methods that the gRPC server has, without their services.
var methodNames = [...]string{"ShouldRateLimit", "Check", "List", "Watch", "ServerReflectionInfo", "StreamRateLimitQuotas"}

// responseTimeBuckets are upper bounds in seconds: from 10 us, since a decision
// takes microseconds; from 5 ms on those that envoyproxy/ratelimit has.
var responseTimeBuckets = append([]float64{10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3}, prometheus.DefBuckets...)

const responseTime = "ratelimit_service_response_time_seconds"

// Calls count gRPC calls by method, and those of /json as ShouldRateLimit.
type Calls struct {
	// ShouldRateLimit is the method that decides.
	ShouldRateLimit *Method

	methods map[string]*Method
	// unit is what response times are counted in.
	unit time.Duration
}

// Method counts the calls of one method. Its methods may be called concurrently;
// they look nothing up once a status code has occurred.
type Method struct {
	// Requests counts them when they begin.
	Requests prometheus.Counter

	times prometheus.ObserverVec
	// byCode has the histogram of each status code that occurred, so that those
	// that never do have no series.
	byCode [len(codeNames)]atomic.Pointer[prometheus.Observer]
	// unit is what the response time is counted in, in nanoseconds.
	unit float64
}

func newCalls(r *registry, milliseconds bool) *Calls {
	requests := r.counters("ratelimit_service_total_requests", "Calls by method, of health and reflection too; /json counts as ShouldRateLimit.", "grpc_method")
	unit, help := time.Second, "Time from a request's bytes to its reply's, by method and gRPC status code, without the time for which a reply was held."
	buckets := responseTimeBuckets
	if milliseconds {
		unit, help = time.Millisecond, help+" In MILLISECONDS, as --response-time-milliseconds asks."
		buckets = make([]float64, len(buckets))
		for i, b := range responseTimeBuckets {
			buckets[i] = b * 1e3
		}
	}
	times := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: responseTime, Help: help, Buckets: buckets,
		// A native histogram too, for servers that ask for it: buckets a tenth apart.
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{"grpc_method", "code"})
	r.Register(times)
	c := &Calls{methods: map[string]*Method{}, unit: unit}
	for _, name := range methodNames {
		c.methods[name] = &Method{
			Requests: requests.WithLabelValues(name),
			times:    times.MustCurryWith(prometheus.Labels{"grpc_method": name}),
			unit:     float64(unit),
		}
	}
	c.ShouldRateLimit = c.methods[methodNames[0]]
	c.ShouldRateLimit.observer(0) // there before the first call
	return c
}

// Method returns what counts the calls of the method of that name, without its
// service, or nil if no service has it.
func (c *Calls) Method(name string) *Method { return c.methods[name] }

// Done notes that a call was answered with a gRPC status code after some time.
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
