package envoyconfig

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/envoyconfig/istio"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// newPatchedTable returns the routes that the patches of a chain are for, each as far as patches say something of it:
// a virtual host for each match of one, with a route for each match of a route, and a route for all others.
func newPatchedTable(chain istio.Chain) *table {
	t := &table{node: &tree.Missing}
	var keys []istio.HostMatch
	for _, p := range chain {
		switch {
		case !p.Value.There():
		case p.ApplyTo == istio.RouteConfiguration:
			t.node = istio.Merge(t.node, p.Value)
			t.hosts = append(t.hosts, newTable(p.Value).hosts...)
		case p.ApplyTo == istio.VirtualHost && !p.Merges():
			h := newHost(p.Value)
			h.routes = tree.All(p.Value.Field("routes"), newRoute)
			t.hosts = append(t.hosts, h)
		case (p.ApplyTo == istio.VirtualHost || p.ApplyTo == istio.HTTPRoute) && !slices.Contains(keys, p.Host()):
			keys = append(keys, p.Host())
		}
	}
	for _, key := range keys {
		t.hosts = append(t.hosts, newPatchedHost(chain, key))
	}
	if len(t.hosts) == 0 && t.node.There() {
		t.hosts = []*virtualHost{{node: &tree.Missing, routes: []*route{{node: t.node, action: &tree.Missing, fragment: true}}}}
	}
	return t
}

// newPatchedHost returns the virtual host of a match, after all patches for it. Their policies keep the nodes of the
// files, by which the checks know them.
func newPatchedHost(chain istio.Chain, key istio.HostMatch) *virtualHost {
	h := &virtualHost{node: &tree.Missing, name: key.Name}
	var routes, added []*istio.Patch
	names := []string{}
	for _, p := range chain {
		switch {
		case !p.Value.There() || !p.Host().Takes(key):
		case p.ApplyTo == istio.VirtualHost && p.Merges():
			h.node = istio.Merge(h.node, p.Value)
			h.policies = append(h.policies, newPolicies(p.Value.Field("rate_limits"))...)
		case p.ApplyTo == istio.HTTPRoute && p.Merges():
			routes, names = append(routes, p), append(names, p.Route())
		case p.ApplyTo == istio.HTTPRoute:
			added = append(added, p)
		}
	}
	if h.node.There() {
		names = append(names, "")
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		r := &route{node: &tree.Missing, fragment: true}
		for _, p := range routes {
			if p.Route() == "" || p.Route() == name {
				r.node = istio.Merge(r.node, p.Value)
				r.policies = append(r.policies, newPolicies(p.Value.At("route", "rate_limits"))...)
			}
		}
		r.action = r.node.Field("route")
		if !r.node.There() {
			r.node = h.node
		}
		h.routes = append(h.routes, r)
	}
	for _, p := range added {
		h.routes = append(h.routes, newRoute(p.Value))
	}
	return h
}
