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
	// QuotaBucket is an action in the matcher tree of the quota filter, and QuotaOverride its per-route
	// configuration.
	QuotaBucket   = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings"
	QuotaOverride = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaOverride"

	// HeaderInput and QueryInput are inputs of matcher trees and bucket IDs whose values clients choose.
	HeaderInput = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
	QueryInput  = "envoy.type.matcher.v3.HttpRequestQueryParamMatchInput"
	// AddressInput is the client's address, and DirectInput the peer's.
	AddressInput = "envoy.extensions.matching.common_inputs.network.v3.SourceIPInput"
	DirectInput  = "envoy.extensions.matching.common_inputs.network.v3.DirectSourceIPInput"

	// Discovery is the response of a management server. Dump is the output of /config_dump; the message names of its
	// parts begin with DumpPart.
	Discovery = "envoy.service.discovery.v3.DiscoveryResponse"
	Dump      = "envoy.admin.v3.ConfigDump"
	DumpPart  = "envoy.admin.v3."

	// EnvoyFilter is Istio's. The message of a patch's value is named Patch followed by its applyTo.
	EnvoyFilter = "networking.istio.io/v1alpha3.EnvoyFilter"
	Patch       = EnvoyFilter + "."

	// Snippet is the output of sluice envoy snippet.
	Snippet = "sluice.Snippet"
)

// httpFilter is an element of http_filters.
const httpFilter = "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter"

// containers are messages that contain those of Envoy's API, in the format of schema.txt. They may have further fields.
// The Structs in them are validated separately.
const containers = `
` + Discovery + ` ...
resources []Struct

` + Dump + ` ...
configs []Struct

envoy.admin.v3.BootstrapConfigDump ...
bootstrap .Running

envoy.admin.v3.Running ...
node envoy.config.core.v3.Node
layered_runtime envoy.config.bootstrap.v3.LayeredRuntime

envoy.admin.v3.ListenersConfigDump ...
static_listeners []Struct
dynamic_listeners []Struct

envoy.admin.v3.ClustersConfigDump ...
static_clusters []Struct
dynamic_active_clusters []Struct

envoy.admin.v3.RoutesConfigDump ...
dynamic_route_configs []Struct

envoy.admin.v3.EcdsConfigDump ...
ecds_filters []Struct

` + EnvoyFilter + ` ...
spec sluice.EnvoyFilterSpec

sluice.EnvoyFilterSpec ...
config_patches []sluice.EnvoyFilterPatch

sluice.EnvoyFilterPatch ...
match Struct
patch sluice.EnvoyFilterValue

sluice.EnvoyFilterValue ...
value Struct

` + Snippet + ` ...
http_filters []` + httpFilter + `
rate_limits []envoy.config.route.v3.RateLimit
typed_per_filter_config {}Any
request_headers_to_remove []string
clusters []Struct
`

// patchMessages maps the messages of patch values to those of Envoy.
var patchMessages = map[string]string{
	Patch + "HTTP_FILTER":      httpFilter,
	Patch + "VIRTUAL_HOST":     VirtualHost,
	Patch + "HTTP_ROUTE":       Route,
	Patch + "CLUSTER":          Cluster,
	Patch + "LISTENER":         Listener,
	Patch + "EXTENSION_CONFIG": Extension,
}
