package envoyconfig

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
)

// placeholder stands in a snippet for what rules do not say. Check does not let it pass.
const placeholder = "CHANGE-ME"

// Snippet returns parts of a configuration that asks for what the rules of a domain need: a
// filter, a cluster, and a list of actions for each rule. They are EnvoyFilters of Istio if
// that is set. The domain must be configured.
func Snippet(set *descriptors.Set, domain string, istio bool) string {
	limit, cluster := snippetFilter(set, domain), snippetCluster
	lists := snippetLists(set, domain)
	if !istio {
		return "# Into http_filters of the connection manager, before the router:\nhttp_filters:\n" + item(limit, "  ") +
			"\n# Among the clusters:\nclusters:\n" + item(cluster, "  ") +
			"\n# Into a virtual host, or into the `route` of the routes that a list is for:\nrate_limits:\n" + shift(lists, "  ")
	}
	return `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: { name: sluice, namespace: istio-system } # where the gateway runs
spec:
  workloadSelector: { labels: { istio: ingressgateway } }
  configPatches:
    - applyTo: HTTP_FILTER
      match:
        context: GATEWAY
        listener:
          filterChain:
            filter:
              name: envoy.filters.network.http_connection_manager
              subFilter: { name: envoy.filters.http.router }
      patch:
        operation: INSERT_BEFORE
        value:
` + shift(limit, "          ") + `    - applyTo: CLUSTER
      match: { context: GATEWAY }
      patch:
        operation: ADD
        value:
` + shift(cluster, "          ") + `    # Lists that are for one route go into a patch of HTTP_ROUTE, below "route".
    - applyTo: VIRTUAL_HOST
      match: { context: GATEWAY, routeConfiguration: { vhost: { name: "` + placeholder + `:80" } } } # a host and a port of the Gateway
      patch:
        operation: MERGE
        value:
          rate_limits:
` + shift(lists, "            ")
}

// snippetFilter is the filter, whose timeout is longer than any rule holds replies.
func snippetFilter(set *descriptors.Set, domain string) string {
	timeout := 250 * time.Millisecond
	for _, l := range set.Limits {
		if l.Rule.Domain() == domain && !l.Candidate {
			timeout = max(timeout, l.Policy.MaxWait+250*time.Millisecond)
		}
	}
	return `name: envoy.filters.http.ratelimit
typed_config:
  "@type": type.googleapis.com/` + api.RateLimit + `
  domain: ` + strconv.Quote(domain) + `
  timeout: ` + strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64) + `s
  enable_x_ratelimit_headers: DRAFT_VERSION_03
  rate_limited_as_resource_exhausted: true
  rate_limit_service:
    transport_api_version: V3
    grpc_service: { envoy_grpc: { cluster_name: sluice } }
`
}

const snippetCluster = `name: sluice
type: STRICT_DNS
connect_timeout: 1s
load_assignment:
  cluster_name: sluice
  endpoints:
    - lb_endpoints:
        - endpoint: { address: { socket_address: { address: ` + placeholder + `, port_value: 8081 } } }
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config:
      http2_protocol_options:
        connection_keepalive: { interval: 30s, timeout: 5s }
circuit_breakers:
  thresholds: [{ max_requests: 10000 }]
health_checks:
  - timeout: 1s
    interval: 5s
    no_traffic_interval: 5s
    unhealthy_threshold: 2
    healthy_threshold: 1
    grpc_health_check: {}
`

// snippetLists is a list of actions for each rule, rules that need the same one together.
func snippetLists(set *descriptors.Set, domain string) string {
	var ofDomain []*descriptors.Rule
	for _, l := range set.Limits {
		if r := l.Rule; r.Domain() == domain && (len(ofDomain) == 0 || ofDomain[len(ofDomain)-1] != r) {
			ofDomain = append(ofDomain, r)
		}
	}
	// Keys of which some rule has any value come from the request, and so do the values
	// that other rules have.
	type place struct {
		depth int
		key   string
	}
	open := map[place]bool{}
	for _, r := range ofDomain {
		for depth, l := range r.Levels() {
			if l.Value == "" || strings.Contains(l.Value, "*") {
				open[place{depth, l.Key}] = true
			}
		}
	}
	var order []string
	uses := map[string][]string{}
	for _, r := range ofDomain {
		var b strings.Builder
		for depth, l := range r.Levels() {
			b.WriteString("    - " + snippetAction(l, open[place{depth, l.Key}]) + "\n")
		}
		if uses[b.String()] == nil {
			order = append(order, b.String())
		}
		uses[b.String()] = append(uses[b.String()], fmt.Sprintf("# %s at %v\n", rules.Shorten(r.Path()), r.Pos()))
	}
	var b strings.Builder
	for _, actions := range order {
		b.WriteString(strings.Join(uses[actions], "") + "- actions:\n" + actions)
	}
	return b.String()
}

// snippetAction is what makes an entry that a level of the rules matches. Open says that its
// value is the request's.
func snippetAction(l rules.Level, open bool) string {
	value := strconv.Quote(l.Value)
	if open {
		value = placeholder
	}
	switch l.Key {
	case "remote_address", "masked_remote_address", "source_cluster", "destination_cluster":
		return l.Key + ": {}"
	case "generic_key":
		return "generic_key: { descriptor_value: " + value + " }"
	case "header_match":
		return "header_value_match: { descriptor_value: " + value + ", headers: [{ name: " + placeholder + ", string_match: { exact: " + placeholder + " } }] }"
	case "query_match":
		return "query_parameter_value_match: { descriptor_value: " + value + ", query_parameters: [{ name: " + placeholder + ", string_match: { exact: " + placeholder + " } }] }"
	}
	key := strconv.Quote(l.Key)
	if strings.Contains(l.Key, "*") {
		key = placeholder
	}
	fromHeader := "request_headers: { header_name: " + placeholder + ", descriptor_key: " + key + " }"
	if open {
		return fromHeader
	}
	return fromHeader + " # or where only some routes send it: generic_key: { descriptor_key: " + key + ", descriptor_value: " + value + " }"
}

// shift moves text to the right.
func shift(s, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n"+by) + "\n"
}

// item makes an object an element of a list.
func item(s, by string) string {
	return by + "- " + shift(s, by+"  ")[len(by)+2:]
}
