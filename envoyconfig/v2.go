package envoyconfig

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// retiredMessages maps the v2 API's messages about rate limits to those of v3. Other messages are not listed:
// third-party names may contain v2, too.
var retiredMessages = map[string]string{
	"envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager": api.ConnectionManager,
	"envoy.config.filter.http.rate_limit.v2.RateLimit":                             api.RateLimit,
	"envoy.config.filter.network.rate_limit.v2.RateLimit":                          api.NetworkRateLimit,
	"envoy.config.filter.http.router.v2.Router":                                    api.Router,
	"envoy.config.bootstrap.v2.Bootstrap":                                          api.Bootstrap,
	"envoy.api.v2.Listener":                                                        api.Listener,
	"envoy.api.v2.Cluster":                                                         api.Cluster,
	"envoy.api.v2.RouteConfiguration":                                              api.RouteTable,
}

// retiredFilters are the v2 filters that have config instead of typed_config.
var retiredFilters = map[string]string{
	"envoy.http_connection_manager": api.ConnectionManager, "envoy.filters.network.http_connection_manager": api.ConnectionManager,
	"envoy.rate_limit": api.RateLimit, "envoy.filters.http.ratelimit": api.RateLimit,
}

// checkRetired returns an error if a file uses Envoy's v2 API. Nothing else is reported about such a file.
func checkRetired(roots []tree.Node) error {
	var first *tree.Node
	old, now := "", ""
	places := 0
	report := func(at *tree.Node, found, write string) {
		if places++; first == nil {
			first, old, now = at, found, write
		}
	}
	for i := range roots {
		// Dumps of later Envoys contain the old names of resources, too.
		dump := roots[i].Field("configs").Kind == tree.List
		roots[i].Walk(func(n *tree.Node) {
			name, _ := n.Typed()
			if now := retiredMessages[name]; now != "" && (!dump || strings.HasPrefix(name, "envoy.config.filter.")) {
				report(n.Field("@type"), name, `"@type": type.googleapis.com/`+now)
			} else if now := retiredFilters[n.Field("name").Text]; now != "" && n.Field("config").Kind == tree.Object {
				report(n.Field("config"), "config instead of typed_config", `typed_config: { "@type": type.googleapis.com/`+now+" }")
			} else if filters := n.At("spec", "filters"); n.Field("kind").Text == "EnvoyFilter" && filters.Exists() {
				report(filters, "spec.filters of Istio before 1.3", "spec.configPatches")
			}
		})
	}
	if first == nil {
		return nil
	}
	more := ""
	if places > 1 {
		more = fmt.Sprintf("; %d places of this file use it", places)
	}
	return fmt.Errorf("%v: this is Envoy's v2 API (%s), which Envoy removed in 1.18: write %s%s", first.Pos(), old, now, more)
}
