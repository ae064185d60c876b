package envoyconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// clearingFilter makes Envoy select the route again.
const clearingFilter = `name: envoy.filters.http.set_filter_state
typed_config:
  "@type": type.googleapis.com/` + setFilterState + `
  clear_route_cache: true
`

// SoftSnippet returns routes for requests above the soft limits of a domain, and for those with which
// a limit is used up to its notify_at, and the filter that these routes need. With istio the
// configuration is wrapped in an EnvoyFilter. SoftSnippet returns an error if no limit of the domain
// has the field soft or notify_at.
func SoftSnippet(set *descriptors.Set, domain string, istio bool) (string, error) {
	limits := set.Reporting(domain)
	if len(limits) == 0 {
		return "", fmt.Errorf("no limit of domain %q has soft or notify_at, so there is nothing to route by; add soft: true to a limit", rules.Shorten(domain))
	}
	var routes []string
	seen := map[string]bool{}
	for _, l := range limits {
		name := string(rules.AppendSoftName(nil, l.Name))
		if seen[name] {
			continue
		}
		seen[name] = true
		routes = append(routes, fmt.Sprintf(`match:
  prefix: /
  dynamic_metadata: # clients cannot write it
    - filter: %s
      path: [{ key: %s }]
      value: { string_match: { exact: %s } } # %s at %v
route: { cluster: %s }
`, filterNamespace, softKey, strconv.Quote(name), rules.Shorten(l.Rule.Path()), l.Pos, placeholder))
	}
	var b strings.Builder
	if !istio {
		b.WriteString("# sluice needs the flag --denied-by.\n" +
			"# Add to http_filters of the connection manager, after the rate limit filter: Envoy selects a route before it calls\n" +
			"# sluice, and this filter makes it select again.\nhttp_filters:\n" + listItem(2, clearingFilter) +
			"\n# Add to a virtual host, before its other routes:\nroutes:\n")
		for _, route := range routes {
			b.WriteString(listItem(2, route))
		}
		return b.String(), nil
	}
	b.WriteString(`# sluice needs the flag --denied-by.
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: { name: sluice-soft, namespace: istio-system } # where the gateway runs
spec:
  priority: 10 # after the EnvoyFilter with the rate limit filter
  workloadSelector: { labels: { istio: ingressgateway } }
  configPatches:
    # Envoy selects a route before it calls sluice. This filter makes it select again.
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
` + indentText(10, clearingFilter))
	for _, route := range slices.Backward(routes) { // each is put before those of the previous patches
		b.WriteString(`    - applyTo: HTTP_ROUTE
      match: { context: GATEWAY, routeConfiguration: { vhost: { name: "` + placeholder + `:80" } } } # a host and a port of the Gateway
      patch:
        operation: INSERT_FIRST
        value:
` + indentText(10, route))
	}
	return b.String(), nil
}
