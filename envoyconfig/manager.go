package envoyconfig

import (
	"fmt"
	"sync"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/istio"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// manager is an HTTP connection manager: filters and the routes that they act on.
type manager struct {
	node *tree.Node
	// listener is the name of the one that has it.
	listener string
	filters  []*filter
	upgrades []upgrade
	// networkFilters are the network filters of its filter chain that ask when a connection begins.
	networkFilters []*filter
	// table is nil where no file has the routes.
	table *table
	// fragments says that filters and routes are parts, which Istio puts somewhere.
	fragments bool
	// chain has the patches of EnvoyFilters that made the manager; nil of others.
	chain istio.Chain
	// hasUpstreamFilters reports whether filters may run after the router.
	hasUpstreamFilters bool
	// setters has what setterTexts returned, by setterOf. Its texts follow from the configuration alone.
	setters sync.Map
}

// rateLimitFilters returns the rate limit filters that requests come to: those before the router.
func (m *manager) rateLimitFilters() []*filter {
	var all []*filter
	for _, f := range m.filters {
		switch f.typeName {
		case api.RateLimit:
			all = append(all, f)
		case api.Router:
			return all
		}
	}
	return all
}

// name is the manager for people.
func (m *manager) name() string {
	if m.listener == "" {
		return m.node.Pos().String()
	}
	return "listener " + rules.Shorten(m.listener)
}

// wantedTable is what to give where no file has the routes.
func (m *manager) wantedTable() string {
	if name := m.node.At("rds", "route_config_name").Text; name != "" {
		return fmt.Sprintf(", or the RouteConfiguration %q, too", rules.Shorten(name))
	}
	return ""
}

// filtersBefore returns the names of the filters before f that may change the request.
func (m *manager) filtersBefore(f *filter) []string {
	var names []string
	for _, other := range m.filters {
		if other == f {
			break
		}
		if other.typeName != api.RateLimit {
			names = append(names, other.name)
		}
	}
	return names
}
