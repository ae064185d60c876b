package accesslog

// The names of fields that mean something to the simulation. Headers have their own, in
// lower case, and other operators of Envoy theirs.
const (
	FieldMetadata = "metadata"
	FieldRemote   = "downstream_remote_address"
	FieldDirect   = "downstream_direct_remote_address"
	FieldRoute    = "route_name"
	FieldXFF      = "x-forwarded-for"
	// FieldDuration is how long a request took, in the unit that [Format.DurationUnit] says.
	FieldDuration = "duration"

	fieldTime   = "time"
	fieldStatus = "status"
	fieldFlags  = "flags"
)

// RateLimitMetadata is where Envoy keeps what the service's reply says.
const RateLimitMetadata = "envoy.filters.http.ratelimit"
