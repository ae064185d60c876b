package proxy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

type (
	object = map[string]any
	list   = []any
)

// listener describes a listener of Envoy. Fields other than name and accessLog are YAML.
type listener struct {
	// name is "ingress" if empty.
	name string
	// before lists the filters in front of the rate limit filters, and after those behind them.
	// Optional.
	before, after string
	// rateLimit lists the rate limit filters, each as fields that override rateLimitFilter.
	// Default: one filter.
	rateLimit []string
	// routes lists the routes. All lead to the backend, so a route needs no action.
	routes string
	// accessLog is the format of the access log on standard output. Optional.
	accessLog string
	// tracing is the tracing configuration of the connection manager. Optional.
	tracing string
	// manager contains more fields of the connection manager. Optional.
	manager string
}

// rateLimitFilter denies on errors, unlike envoy.yaml, and has a longer timeout, so that no test
// passes because of a late or missing reply.
const rateLimitFilter = `
"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
domain: d
timeout: 3600s
failure_mode_deny: true
enable_x_ratelimit_headers: DRAFT_VERSION_03
enable_retry_after_header: true
rate_limited_as_resource_exhausted: true
rate_limit_service:
  transport_api_version: V3
  grpc_service: { envoy_grpc: { cluster_name: sluice } }
`

// byUser sends the descriptor user with the header x-user.
const byUser = `[{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]`

const sluiceCluster = `
name: sluice
type: STATIC
circuit_breakers: { thresholds: [{ max_requests: 10000 }] }
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: { http2_protocol_options: {} }
`

// bootstrap returns an Envoy configuration as JSON with the given listeners and the clusters sluice
// and backend. clusterFields (YAML) are added to the cluster sluice.
func bootstrap(tb testing.TB, listeners []listener, clusterFields string) []byte {
	tb.Helper()
	cluster := fields(tb, sluiceCluster)
	maps.Copy(cluster, fields(tb, clusterFields))
	rendered := make(list, len(listeners))
	for i, l := range listeners {
		rendered[i] = l.render(tb)
	}
	text, err := json.Marshal(object{
		"node": object{"id": "test", "cluster": "test"}, // required for secrets
		"static_resources": object{
			"listeners": rendered,
			"clusters":  list{cluster, object{"name": "backend"}},
		},
	})
	must.OK(tb, err)
	return text
}

func (l listener) render(tb testing.TB) object {
	tb.Helper()
	filters := elements(tb, l.before)
	if l.rateLimit == nil {
		l.rateLimit = []string{""}
	}
	for _, differences := range l.rateLimit {
		config := fields(tb, rateLimitFilter)
		maps.Copy(config, fields(tb, differences))
		filters = append(filters, filter("envoy.filters.http.ratelimit", config))
	}
	filters = append(filters, elements(tb, l.after)...)
	filters = append(filters, filter("envoy.filters.http.router", object{
		"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
	}))
	routes := elements(tb, l.routes)
	for _, r := range routes {
		route, ok := r.(object)
		if !ok {
			tb.Fatalf("route is %v, want an object", r)
		}
		action := object{"cluster": "backend", "timeout": "0s"}
		more, _ := route["route"].(object)
		maps.Copy(action, more)
		route["route"] = action
	}
	manager := object{
		"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "test",
		// Behaviour does not depend on time unless a test is about it.
		"stream_idle_timeout": "0s",
		"http_filters":        filters,
		"route_config": object{"virtual_hosts": list{
			object{"name": "all", "domains": list{"*"}, "routes": routes},
		}},
	}
	if l.accessLog != "" {
		manager["access_log"] = list{filter("envoy.access_loggers.stdout", object{
			"@type":      "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
			"log_format": object{"text_format_source": object{"inline_string": l.accessLog + "\n"}},
		})}
	}
	if l.tracing != "" {
		manager["tracing"] = fields(tb, l.tracing)
	}
	maps.Copy(manager, fields(tb, l.manager))
	return object{
		"name": l.nameOrDefault(),
		"filter_chains": list{object{"filters": list{
			filter("envoy.filters.network.http_connection_manager", manager),
		}}},
	}
}

func (l listener) nameOrDefault() string {
	if l.name == "" {
		return "ingress"
	}
	return l.name
}

// byHeader returns a request_headers action.
func byHeader(name, key string) string {
	return fmt.Sprintf("{ request_headers: { header_name: %q, descriptor_key: %s } }", name, key)
}

func filter(name string, config object) object {
	return object{"name": name, "typed_config": config}
}

func fields(tb testing.TB, text string) (m object) {
	tb.Helper()
	decode(tb, text, &m)
	return m
}

func elements(tb testing.TB, text string) (l list) {
	tb.Helper()
	decode(tb, text, &l)
	return l
}

func decode(tb testing.TB, text string, into any) {
	tb.Helper()
	if text == "" {
		return // the decoder rejects an empty document
	}
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		tb.Fatalf("%v in:\n%s", err, text)
	}
}
