package accesslog

// Fields used by the simulation. A header's field is its name in lower case; fields of other
// operators are named like the operator.
const (
	FieldMetadata = "metadata"
	FieldRemote   = "downstream_remote_address"
	FieldDirect   = "downstream_direct_remote_address"
	FieldRoute    = "route_name"
	FieldXFF      = "x-forwarded-for"
	// FieldDuration is the duration of a request, in the unit of [Format.DurationUnit].
	FieldDuration = "duration"

	fieldTime   = "time"
	fieldStatus = "status"
	fieldFlags  = "flags"
)

// RateLimitMetadata is the namespace of the rate limit filter's dynamic metadata.
const RateLimitMetadata = "envoy.filters.http.ratelimit"
