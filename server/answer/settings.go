package answer

import (
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Settings say how requests are answered. They are fixed for the life of a [Service]. Fields that
// are flags carry them as tags, as those of [Limits] do.
type Settings struct {
	ShadowMode     bool    `group:"decisions" help:"Allow every request. Descriptor statuses, counters and metrics are unaffected."`
	QuotaMode      bool    `group:"decisions" help:"Treat every descriptor as a quota: deny a request only if all of them are over limit."`
	NearLimitRatio float32 `group:"decisions" type:"ratio" default:"0.8" placeholder:"RATIO" help:"Fraction of a limit, 0 to 1, above which hits count as near_limit."`

	ResponseHeaders  bool    `group:"replies" help:"Add response headers with the limit, the remaining requests and the time until the reset."`
	Headers          Headers `embed:""`
	RetryAfterHeader bool    `group:"replies" help:"Add a Retry-After header to denials."`
	// RequestHeaders and RequestNames are ResponseHeaders and Headers of the request that Envoy forwards.
	RequestHeaders   bool           `group:"replies" help:"Have Envoy add headers with the limit, the remaining requests and the time until the reset to the requests that it forwards."`
	RequestNames     RequestHeaders `embed:""`
	DynamicMetadata  bool           `group:"replies" help:"Add the request and the metadata of matched rules to the dynamic metadata of responses."`
	DecisionMetadata bool           `group:"replies" help:"Add the decisions to the dynamic metadata of responses, under the key sluice."`

	// LeaseGrace of 0 has leases outlive the connections of their clients in any case.
	LeaseGrace time.Duration `group:"decisions" range:"0s..1h" default:"1s" placeholder:"TIME" help:"Release the leases of an Envoy that lost its last connection, seems dead, and does not reconnect within this time. 0 disables it."`

	NoMetricDots bool `group:"process" name:"sanitize-metric-dots" help:"Replace the dots in keys and values of descriptors by underscores in metrics, so that dots only separate levels."`

	TopKeys string `group:"process" enum:"off,hashed,clear" default:"hashed" placeholder:"off|hashed|clear" help:"What to record of the most denied keys, for sluice top: off (nothing), hashed (a keyed hash of each) or clear (also their values)."`

	// Clock gives the time of a request, and the time at which a denied group refunds what
	// it reserved; see limiter.Batch. Optional: by default the server makes a clock of its
	// own, and the refund has the time of the request.
	Clock *clock.Clock `kong:"-"`
	// Allow says which clients may ask for which domains. Optional: by default each client
	// may ask for each domain.
	Allow *access.AllowList `kong:"-"`
	// Decider decides in place of the table, maybe later, on counters that Namer names. Optional: by
	// default the table decides.
	Decider Decider            `kong:"-"`
	Namer   *descriptors.Namer `kong:"-"`
	// Tables are those that rules may name. Nil for none.
	Tables *tables.Registry `kong:"-"`
	// TableMetrics are by the names of Tables.
	TableMetrics map[string]*telemetry.Table `kong:"-"`
	// Bounds are the most that one request may hold.
	Bounds Bounds `embed:"" group:"bounds"`
}

func (s *Settings) metricKeys() descriptors.MetricKeys {
	return descriptors.MetricKeys{NoDots: s.NoMetricDots}
}

// Headers are the names of the response headers; an empty name leaves that
// header out.
type Headers struct {
	Limit     string `group:"replies" name:"limit-header" type:"header" default:"RateLimit-Limit" placeholder:"NAME" help:"Name of the response header with the limit. Empty omits it."`
	Remaining string `group:"replies" name:"remaining-header" type:"header" default:"RateLimit-Remaining" placeholder:"NAME" help:"Name of the response header with the remaining requests. Empty omits it."`
	Reset     string `group:"replies" name:"reset-header" type:"header" default:"RateLimit-Reset" placeholder:"NAME" help:"Name of the response header with the seconds until the reset. Empty omits it."`
}

// RequestHeaders are the names of the headers of forwarded requests; an empty name leaves that header
// out.
type RequestHeaders struct {
	Limit     string `group:"replies" name:"request-limit-header" type:"header" default:"RateLimit-Limit" placeholder:"NAME" help:"Name of the request header with the limit. Empty omits it."`
	Remaining string `group:"replies" name:"request-remaining-header" type:"header" default:"RateLimit-Remaining" placeholder:"NAME" help:"Name of the request header with the remaining requests. Empty omits it."`
	Reset     string `group:"replies" name:"request-reset-header" type:"header" default:"RateLimit-Reset" placeholder:"NAME" help:"Name of the request header with the seconds until the reset. Empty omits it."`
}
