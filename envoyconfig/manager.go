package envoyconfig

import (
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/istio"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// manager is an HTTP connection manager with its filters and routes.
type manager struct {
	node *tree.Node
	// listener is the name of its listener.
	listener string
	filters  []*filter
	upgrades []upgrade
	// networkFilters are the rate limit filters of its filter chain that call the service once per connection.
	networkFilters []*filter
	// plaintext is true if its filter chain accepts no TLS.
	plaintext bool
	// unused is the reason why no connection uses the filter chain; empty if one may.
	unused string
	// table is nil if no file contains the routes.
	table *table
	// fragments is true if the manager combines fragments of configuration, which Istio merges into others.
	fragments bool
	// chain has the EnvoyFilter patches from which the manager was built; nil for other managers.
	chain istio.Chain
	// hasUpstreamFilters is true if filters may run after the router.
	hasUpstreamFilters bool
	// runtime contains the values of the static layers.
	runtime runtimeValues
	// clusters are those of the files, and allClusters is true if there are no others.
	clusters    map[string]*tree.Node
	allClusters bool
	// evaluations caches the results of evaluateList by listKey.
	evaluations sync.Map
}

// rateLimitFilters returns the rate limit filters before the router.
func (m *manager) rateLimitFilters() []*filter { return m.filtersOf(api.RateLimit) }

// quotaFilters returns the quota filters before the router.
func (m *manager) quotaFilters() []*filter { return m.filtersOf(api.RateLimitQuota) }

// filtersOf returns the filters of a type before the router.
func (m *manager) filtersOf(typeName string) (all []*filter) {
	for _, f := range m.filters {
		switch f.typeName {
		case typeName:
			all = append(all, f)
		case api.Router:
			return all
		}
	}
	return all
}

// name returns the listener or the position, for messages.
func (m *manager) name() string {
	if m.listener == "" {
		return m.node.Pos().String()
	}
	return "listener " + rules.Shorten(m.listener)
}

// wantedTable names the missing route configuration, for messages.
func (m *manager) wantedTable() string {
	if name := m.node.At("rds", "route_config_name").Text; name != "" {
		return fmt.Sprintf(", or also the RouteConfiguration %q", rules.Shorten(name))
	}
	return ""
}

// before returns the filters before f, or all if the chain has no f.
func (m *manager) before(f *filter) []*filter {
	if i := slices.Index(m.filters, f); i >= 0 {
		return m.filters[:i]
	}
	return m.filters
}

// after returns the filters after f.
func (m *manager) after(f *filter) []*filter { return m.filters[slices.Index(m.filters, f)+1:] }

// filtersBefore returns the names of the filters before f that may change the request.
func (m *manager) filtersBefore(f *filter) []string {
	var names []string
	for _, other := range m.before(f) {
		if other.typeName != api.RateLimit {
			names = append(names, other.name)
		}
	}
	return names
}
