package envoyconfig

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

const (
	filterPatch = `        operation: INSERT_BEFORE
        value:
          name: envoy.filters.http.ratelimit
`
	hostPatch = `        operation: MERGE
        value:
          rate_limits:
            - actions:
                - request_headers: { header_name: x-user, descriptor_key: user }
`
	serviceOfFilter = `            rate_limit_service:
              transport_api_version: V3
              grpc_service: { envoy_grpc: { cluster_name: sluice } }
`
	routesContext  = "    - applyTo: VIRTUAL_HOST\n      match:\n        context: GATEWAY\n"
	secondSelector = "name: sluice-descriptors\n  namespace: istio-system\nspec:\n  workloadSelector:\n    labels: { istio: ingressgateway }\n"
	matchOfRoute   = `      match:
        context: GATEWAY
        routeConfiguration:
          vhost:
            name: "shop.example.com:80"
            route: { name: reports } # in http of the VirtualService
`
	settingsOfRoute = `          typed_per_filter_config:
            envoy.filters.http.rate_limit: { "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute }
`
)

// istioMistakes are mistakes in examples/istio: each replaces old by put, and want is part of the expected message of
// Read or Check.
var istioMistakes = []struct{ name, old, put, want string }{
	{"after the router", filterPatch, strings.Replace(filterPatch, "BEFORE", "AFTER", 1), "error: no-effect: the filter is after the router, which ends the chain, so it never runs: put it before the router"},
	{"other contexts", "context: GATEWAY\n        routeConfiguration", "context: SIDECAR_INBOUND\n        routeConfiguration", "error: no-effect: no filter in these files sends the rate_limits of this patch, because no listener gets both the patch and the filter at envoyfilter.yaml:12:7: give both the same context"},
	{"one list for another context", "    - applyTo: HTTP_ROUTE\n      match:\n        context: GATEWAY\n", "    - applyTo: HTTP_ROUTE\n      match:\n        context: SIDECAR_OUTBOUND\n", "warning: no-effect: no filter in these files sends the rate_limits of this patch, because no listener gets both the patch and the filter"},
	{"other labels", secondSelector, strings.Replace(secondSelector, "ingressgateway", "ingress-gateway", 1), "error: no-effect: no filter in these files sends"},
	{"another namespace", secondSelector, strings.Replace(secondSelector, "istio-system", "shop", 1), "this patch is for gateways in its namespace only"},
	{"a star for all hosts", `vhost: { name: "shop.example.com:80" }`, `vhost: { name: "*" }`, `no virtual host has the name "*", and istiod compares names exactly: names are host:port`},
	{"a host without its port", `vhost: { name: "shop.example.com:80" }`, `vhost: { name: "shop.example.com" }`, `no virtual host has the name "shop.example.com", and istiod compares names exactly: names are host:port`},
	{"the name of a filter before Istio 1.6", "subFilter: { name: envoy.filters.http.router }", "subFilter: { name: envoy.router }", `Istio adds no filter named "envoy.router", and no patch in these files does: unless something else adds it, this patch does nothing: write envoy.filters.http.router`},
	{"a connection manager that Istio does not have", "              name: envoy.filters.network.http_connection_manager\n", "              name: envoy.http_connection_manager\n", `Istio has no connection manager named "envoy.http_connection_manager"`},
	{"MERGE of the filter", filterPatch, strings.Replace(filterPatch, "INSERT_BEFORE", "MERGE", 1), "MERGE changes existing filters and adds none: write INSERT_BEFORE"},
	{"a cluster for another context", "    - applyTo: CLUSTER\n      match: { context: GATEWAY }", "    - applyTo: CLUSTER\n      match: { context: SIDECAR_OUTBOUND }", `error: cluster`},
	{"another cluster", "cluster_name: sluice }", "cluster_name: sluce }", `did you mean "sluice"?`},
	{"the name of another filter", hostPatch, hostPatch + settingsOfRoute, `no rate limit filter has the name "envoy.filters.http.rate_limit"`},
	{"a filter that nothing adds", "subFilter: { name: envoy.filters.http.router }", "subFilter: { name: other }", `warning: no-effect: Istio adds no filter named "other", and no patch in these files does: unless something else adds it`},
	{"the router misspelt", "subFilter: { name: envoy.filters.http.router }", "subFilter: { name: envoy.filters.http.route }", `error: no-effect: Istio adds no filter named "envoy.filters.http.route"`},
	{"REPLACE of nothing", "              subFilter: { name: envoy.filters.http.router }\n      patch:\n        operation: INSERT_BEFORE", "      patch:\n        operation: REPLACE", "istiod ignores REPLACE without subFilter"},
	{"an operation that the target lacks", "    - applyTo: HTTP_ROUTE\n" + matchOfRoute + "      patch:\n        operation: MERGE", "    - applyTo: HTTP_ROUTE\n" + matchOfRoute + "      patch:\n        operation: REPLACE", "istiod ignores REPLACE for applyTo: HTTP_ROUTE: write MERGE"},
	{"a cluster that is merged", "match: { context: GATEWAY }\n      patch:\n        operation: ADD", "match: { context: GATEWAY }\n      patch:\n        operation: MERGE", `MERGE renames each cluster that it matches to "sluice", and adds none: write operation: ADD`},
	{"a gateway without its namespace", `          vhost: { name: "shop.example.com:80" }`, `          gateway: shop` + "\n" + `          vhost: { name: "shop.example.com:80" }`, `istiod compares gateway with NAMESPACE/NAME, so "shop" matches none`},
	{"settings of all routes for another filter", routesContext, strings.Replace(routesContext, "VIRTUAL_HOST", "ROUTE_CONFIGURATION", 1) + "      patch:\n        operation: MERGE\n        value:\n" + settingsOfRoute + routesContext, `no rate limit filter has the name "envoy.filters.http.rate_limit"`},
}

// TestIstioMistakes inserts common mistakes into a valid EnvoyFilter.
func TestIstioMistakes(t *testing.T) {
	good := readText(t, "../examples/istio/envoyfilter.yaml")
	set := ruleSet(t, readText(t, "../examples/istio/rules.yaml"))
	check := func(text string) string {
		c, err := Read([]File{{"envoyfilter.yaml", []byte(text)}})
		if err != nil {
			return err.Error()
		}
		var found strings.Builder
		for _, f := range c.Check(set) {
			if f.Severity != rules.Note {
				found.WriteString(f.String() + "\n")
			}
		}
		return found.String()
	}
	if found := check(good); found != "" {
		t.Fatalf("the example: %s", found)
	}
	for _, m := range istioMistakes {
		text := strings.ReplaceAll(good, m.old, m.put)
		if text == good {
			t.Errorf("%s: %q is not in the example", m.name, m.old)
			continue
		}
		if found := check(text); !strings.Contains(found, m.want) || !strings.HasPrefix(found, "envoyfilter.yaml:") {
			t.Errorf("%s: found %s, want %s", m.name, found, m.want)
		}
	}
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
