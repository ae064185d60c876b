package live

// The values of [Status.Store].
const (
	StoreNone        = "none" // counters are in memory
	StoreAvailable   = "available"
	StoreUnavailable = "unavailable"
)

// Status shows whether Envoys call the service, and how it answers. Its rates cover the last five
// to ten seconds.
type Status struct {
	// Calls is the rate of calls of ShouldRateLimit, including /json. Denied is the rate of calls
	// answered OVER_LIMIT, and Errors that of calls answered with an error. Calls that the client
	// canceled are not errors.
	Calls  float64 `json:"calls_per_second"`
	Denied float64 `json:"denied_per_second"`
	Errors float64 `json:"errors_per_second"`
	// Connections is the number of open gRPC connections.
	Connections int `json:"connections"`
	// P99 is the 99th percentile of the time from reading a call to writing its response, nil
	// without calls. It is interpolated within a bucket of the histogram of response times. With
	// several replicas it is the highest of their percentiles.
	P99 *float64 `json:"p99_seconds"`
	// Counters is the number of live counters, and MaxCounters the number that fits into
	// --counter-memory if they have the same sizes as the live ones. Both may be five seconds old.
	Counters    int64 `json:"counters_used"`
	MaxCounters int64 `json:"counters_max"`
	// Store is none, available or unavailable.
	Store string `json:"store"`
}

// add adds the status of another replica.
func (s *Status) add(o *Status) {
	s.Calls, s.Denied, s.Errors = s.Calls+o.Calls, s.Denied+o.Denied, s.Errors+o.Errors
	s.Connections += o.Connections
	if s.P99 == nil || o.P99 != nil && *o.P99 > *s.P99 {
		s.P99 = o.P99
	}
	s.Counters, s.MaxCounters = s.Counters+o.Counters, s.MaxCounters+o.MaxCounters
	if s.Store != StoreUnavailable && o.Store != StoreNone {
		s.Store = o.Store
	}
}
