// Package api has the names of the messages of Envoy's API on which limiting depends.
package api

// Names of messages, as in @type.
const (
	Bootstrap         = "envoy.config.bootstrap.v3.Bootstrap"
	Listener          = "envoy.config.listener.v3.Listener"
	RouteTable        = "envoy.config.route.v3.RouteConfiguration"
	Cluster           = "envoy.config.cluster.v3.Cluster"
	Extension         = "envoy.config.core.v3.TypedExtensionConfig"
	ConnectionManager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	RateLimit         = "envoy.extensions.filters.http.ratelimit.v3.RateLimit"
	RateLimitPerRoute = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"
	Router            = "envoy.extensions.filters.http.router.v3.Router"
	VirtualHost       = "envoy.config.route.v3.VirtualHost"
	Route             = "envoy.config.route.v3.Route"

	// LocalRateLimit is the filter that limits without a service. NetworkRateLimit calls the service once per
	// connection.
	LocalRateLimit   = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
	NetworkRateLimit = "envoy.extensions.filters.network.ratelimit.v3.RateLimit"
	FilterConfig     = "envoy.config.route.v3.FilterConfig"

	RateLimitQuota = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig"
	// QuotaBucket is an action in the matcher tree of the quota filter.
	QuotaBucket = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings"

	// HeaderInput and QueryInput are inputs of matcher trees and bucket IDs whose values clients choose.
	HeaderInput = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
	QueryInput  = "envoy.type.matcher.v3.HttpRequestQueryParamMatchInput"

	// DumpPart begins the names of the parts of the output of /config_dump.
	DumpPart = "envoy.admin.v3."
)
