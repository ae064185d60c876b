package envoyconfig

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// table is a route configuration.
type table struct {
	node  *node
	hosts []*virtualHost
}

type virtualHost struct {
	node     *node
	name     string
	domains  []string
	policies []*policy
	routes   []*route
}

type route struct {
	node *node
	// action is the route's RouteAction; missing for a direct response or a redirect, which
	// Envoy answers without asking.
	action   *node
	match    routeMatch
	policies []*policy
	// fragment says that this is what is merged into a route, of which nothing else is known.
	fragment bool
}

func newTable(n *node) *table {
	t := &table{node: n}
	hosts := n.field("virtual_hosts").elements()
	for i := range hosts {
		h := newHost(&hosts[i])
		routes := hosts[i].field("routes").elements()
		for j := range routes {
			h.routes = append(h.routes, newRoute(&routes[j]))
		}
		t.hosts = append(t.hosts, h)
	}
	return t
}

func newHost(n *node) *virtualHost {
	return &virtualHost{
		node: n, name: n.field("name").str(), domains: texts(n.field("domains")), policies: newPolicies(n.field("rate_limits")),
	}
}

func newRoute(n *node) *route {
	action := n.field("route")
	return &route{node: n, action: action, match: newRouteMatch(n.field("match")), policies: newPolicies(action.field("rate_limits"))}
}

// levels are where a filter's configuration for a route can stand, the most specific first.
// Those of weighted clusters are left out.
func levels(t *table, h *virtualHost, r *route) []*node {
	return []*node{r.node, h.node, t.node}
}

// perRoute returns the filter's configuration for a route, and whether the filter is
// disabled there. Envoy looks at the most specific level that has one.
func (f *filter) perRoute(t *table, h *virtualHost, r *route) (config *node, disabled bool) {
	config, disabled = &missing, f.disabled
	said := false
	for _, level := range levels(t, h, r) {
		typeName, n := unwrap(level.field("typed_per_filter_config").named(f.name))
		if typeName == filterConfig {
			if !said && (n.field("disabled").yes(false) || n.field("config").there()) {
				said, disabled = true, n.field("disabled").yes(false)
			}
			typeName, n = unwrap(n.field("config"))
		} else if n.there() && !said {
			said, disabled = true, false
		}
		if typeName == perRouteConfig {
			return n, disabled
		}
	}
	return config, disabled
}

// named returns the value of a map by its key, which is no field's name.
func (n *node) named(key string) *node {
	for i := range n.fields() {
		if n.nodes[i].name == key {
			return &n.nodes[i]
		}
	}
	return &missing
}

// candidate is an element of rate_limits that a filter may send on a route.
type candidate struct {
	*policy
	// own says that it is the filter's, or of its configuration for the route. Only there
	// does Envoy send hits.
	own bool
	// why says why the filter does not send it here; empty if it does.
	why string
}

// candidates returns what a filter may send on a route, and its configuration for the route.
func (f *filter) candidates(t *table, h *virtualHost, r *route) (all []candidate, config *node) {
	config, disabled := f.perRoute(t, h, r)
	add := func(policies []*policy, own bool, why string) {
		if disabled && why == "" {
			why = "the filter is disabled here"
		}
		for _, p := range policies {
			if !own && why == "" && p.stage != f.stage() {
				all = append(all, candidate{p, own, fmt.Sprintf("no filter has its stage, %d", p.stage)})
				continue
			}
			all = append(all, candidate{p, own, why})
		}
	}
	hidden := ""
	if own := config.field("rate_limits"); len(own.elements()) > 0 {
		add(newPolicies(own), true, "")
		hidden = "the filter's configuration for the route has rate_limits of its own"
	}
	add(f.policies, true, hidden)
	if len(f.policies) > 0 && hidden == "" {
		hidden = "the filter has rate_limits of its own"
	}
	add(r.policies, false, hidden)
	option := config.field("vh_rate_limits").enum("OVERRIDE", "INCLUDE", "IGNORE")
	switch {
	case r.action.field("include_vh_rate_limits").yes(false), option == "INCLUDE":
	case option == "IGNORE" && hidden == "":
		hidden = "vh_rate_limits is IGNORE"
	case len(r.policies) > 0 && hidden == "":
		hidden = "the route has rate_limits of its own: with vh_rate_limits INCLUDE it sends these too"
	}
	add(h.policies, false, hidden)
	return all, config
}

// enum returns an enum's name, which may be written as its number. The first name is the
// default.
func (n *node) enum(names ...string) string {
	if n.kind == number {
		if i := n.uint(0); i < uint64(len(names)) {
			return names[i]
		}
	}
	if n.str() == "" {
		return names[0]
	}
	for _, name := range names {
		if strings.EqualFold(name, n.str()) {
			return name
		}
	}
	return n.str()
}

// called is the route for people: its name, or its place.
func (r *route) called() string {
	if name := r.node.field("name").str(); name != "" {
		return "\"" + rules.Shorten(name) + "\""
	}
	return "without a name"
}
