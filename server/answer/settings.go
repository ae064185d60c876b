package answer

import (
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Settings configure how requests are answered. A [Service] never changes them. The tags define
// flags.
type Settings struct {
	ShadowMode     bool    `group:"decisions" help:"Allow every request. Descriptor statuses, counters and metrics are unaffected."`
	QuotaMode      bool    `name:"QUOTA_MODE" hidden:"" help:"Treat every descriptor as a quota: deny a request only if all of them are over limit."`
	NearLimitRatio float32 `name:"NEAR_LIMIT_RATIO" hidden:"" type:"ratio" default:"0.8" placeholder:"RATIO" help:"Fraction of a limit, 0 to 1, above which hits count as near_limit."`

	ResponseHeaders  bool    `name:"LIMIT_RESPONSE_HEADERS_ENABLED" hidden:"" help:"Add the response headers of --ratelimit-headers=legacy, also in addition to those of structured."`
	Headers          Headers `embed:""`
	RateLimitHeaders string  `group:"replies" name:"ratelimit-headers" enum:"none,legacy,structured" default:"none" placeholder:"none|legacy|structured" help:"Response headers with limits: none, legacy (RateLimit-Limit, -Remaining and -Reset of one limit) or structured (RateLimit-Policy and RateLimit of the IETF draft, with each enforced limit that has a name)."`
	RetryAfterHeader bool    `group:"replies" help:"Add a Retry-After header to denials."`
	// DeniedResponse is the name of a preset; see [rules.DeniedPreset]. Empty means none.
	DeniedResponse string `group:"replies" enum:"none,text,problem,openai,anthropic" default:"none" placeholder:"none|text|problem|openai|anthropic" help:"Body and headers of denials for rules and domains without denied_response."`
	GRPCDenials    bool   `name:"grpc-denials" group:"replies" help:"Add grpc-status: 8 and the headers with which gRPC clients retry to denials."`
	// RequestHeaders and RequestNames correspond to ResponseHeaders and Headers, for the request
	// that Envoy forwards.
	RequestHeaders   bool           `group:"replies" help:"Have Envoy add headers with the limit, the remaining requests and the time until the reset to the requests that it forwards."`
	RequestNames     RequestHeaders `embed:""`
	DynamicMetadata  bool           `group:"replies" help:"Add the request and the metadata of matched rules to the dynamic metadata of responses."`
	DecisionMetadata bool           `group:"replies" help:"Add the decisions to the dynamic metadata of responses, under the key sluice."`
	DeniedBy         bool           `group:"replies" help:"Add the name of the limit that denied a request, or else the path of its rule, to the dynamic metadata of the denial, under the key denied_by. Add the name of a soft limit that is exceeded, or of a limit used up to its notify_at, under the key soft."`
	// SoftHeader is empty or the name of a header that is not reserved: see [rules.IsReservedHeader].
	SoftHeader string `group:"replies" type:"soft-header" placeholder:"NAME" help:"Name of a header, such as x-ratelimit-soft, with the name of the soft limit that is exceeded. Envoy adds it to the forwarded request and to the response. Off by default."`

	// LeaseGrace of 0 means that leases are never revoked because of closed connections.
	LeaseGrace time.Duration `group:"decisions" range:"0s..1h" default:"1s" placeholder:"TIME" help:"Release the leases of an Envoy that lost its last connection, seems dead, and does not reconnect within this time. 0 disables it."`

	Sharded bool `group:"decisions" help:"Envoy sends all requests with a key to the same replica, as in examples/sharded. Without it, and without a store, sluice top and an alert report that several replicas count separately."`

	NoMetricDots bool `name:"SANITIZE_DESCRIPTOR_METRIC_DOTS" hidden:"" help:"Replace the dots in keys and values of descriptors by underscores in metrics, so that dots only separate levels."`

	TopKeys string `group:"process" enum:"off,hashed,hashed-only,clear" default:"hashed" placeholder:"off|hashed|hashed-only|clear" help:"What to record of the most denied keys, for sluice top: off (nothing), hashed (a keyed hash of each, and their values for a time after sluice top --unmask), hashed-only (no values) or clear (always their values)."`

	// Clock is read for the time of a request, and for the time at which a denied group refunds its
	// charges; see limiter.Batch. Optional: by default the handler creates a clock, and refunds
	// have the time of the request.
	Clock *clock.Clock `kong:"-"`
	// Allow lists the domains that each client may request. Optional: by default, each client may
	// request each domain.
	Allow *access.AllowList `kong:"-"`
	// Decider, if set, decides instead of the table, possibly asynchronously. Namer makes the names
	// of its counters.
	Decider Decider            `kong:"-"`
	Namer   *descriptors.Namer `kong:"-"`
	// NoChoices is why rules with charge: first_with_room are rejected, and a remedy; empty if they
	// are not.
	NoChoices string `kong:"-"`
	// Tables contains the tables that rules may refer to. Optional.
	Tables *tables.Registry `kong:"-"`
	// TableMetrics contains the metrics of each of Tables, by name.
	TableMetrics map[string]*telemetry.Table `kong:"-"`
	// Bounds limit the size of a request.
	Bounds Bounds `embed:"" group:"bounds"`
}

// additions are the parts of replies that follow from [Settings].
type additions struct {
	// limits is true for the headers of [Settings].Headers, ownRetryAfter if Retry-After is one of
	// them, and structured for RateLimit-Policy and RateLimit.
	limits, structured, ownRetryAfter bool
	// headers reports whether each reply may have headers, and metadata whether it has metadata.
	headers, metadata bool
	// denials reports whether the settings add something to denials, and soft whether they name soft
	// limits. Rules may add more.
	denials, soft bool
}

func (s *Settings) additions() additions {
	a := additions{
		limits: s.ResponseHeaders || s.RateLimitHeaders == "legacy", structured: s.RateLimitHeaders == "structured",
		metadata: s.DynamicMetadata || s.DecisionMetadata,
		denials:  s.GRPCDenials || !rules.DeniedPreset(s.DeniedResponse).IsNone(), soft: s.NamesSoftLimits(),
	}
	a.headers = a.limits || a.structured || s.RequestHeaders || s.RetryAfterHeader
	for _, name := range []string{s.Headers.Limit, s.Headers.Remaining, s.Headers.Reset} {
		a.ownRetryAfter = a.ownRetryAfter || a.limits && strings.EqualFold(name, "Retry-After")
	}
	return a
}

// NamesSoftLimits reports whether replies name limits with soft or notify_at.
func (s *Settings) NamesSoftLimits() bool { return s.DeniedBy || s.SoftHeader != "" }

// CountsAlone reports whether other replicas neither share the counters nor get requests with other
// keys only, so that each replica grants the complete limit.
func (s *Settings) CountsAlone() bool { return s.Decider == nil && !s.Sharded }

func (s *Settings) metricKeys() descriptors.MetricKeys {
	return descriptors.MetricKeys{NoDots: s.NoMetricDots}
}

// Headers contains the names of the response headers. A header with an empty name is not added.
type Headers struct {
	Limit     string `name:"LIMIT_LIMIT_HEADER" hidden:"" type:"header" default:"RateLimit-Limit" placeholder:"NAME" help:"Name of the response header with the limit. Empty omits it."`
	Remaining string `name:"LIMIT_REMAINING_HEADER" hidden:"" type:"header" default:"RateLimit-Remaining" placeholder:"NAME" help:"Name of the response header with the remaining requests. Empty omits it."`
	Reset     string `name:"LIMIT_RESET_HEADER" hidden:"" type:"header" default:"RateLimit-Reset" placeholder:"NAME" help:"Name of the response header with the seconds until the reset. Empty omits it."`
}

// RequestHeaders contains the names of the headers of forwarded requests. A header with an empty
// name is not added.
type RequestHeaders struct {
	Limit     string `name:"LIMIT_REQUEST_LIMIT_HEADER" hidden:"" type:"header" default:"RateLimit-Limit" placeholder:"NAME" help:"Name of the request header with the limit. Empty omits it."`
	Remaining string `name:"LIMIT_REQUEST_REMAINING_HEADER" hidden:"" type:"header" default:"RateLimit-Remaining" placeholder:"NAME" help:"Name of the request header with the remaining requests. Empty omits it."`
	Reset     string `name:"LIMIT_REQUEST_RESET_HEADER" hidden:"" type:"header" default:"RateLimit-Reset" placeholder:"NAME" help:"Name of the request header with the seconds until the reset. Empty omits it."`
}
