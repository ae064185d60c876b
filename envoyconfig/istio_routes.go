package envoyconfig

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/envoyconfig/istio"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// newPatchedTable returns the routes that the patches of a chain are for, each as far as patches say something of it:
// a virtual host for each match of one, with a route for each match of a route, and a route for all others.
func newPatchedTable(chain *istio.Chain) *table {
	t := &table{node: &tree.Missing}
	var keys []istio.HostMatch
	for _, p := range chain.Patches {
		switch {
		case p.ApplyTo == istio.RouteConfiguration && p.Merges():
			t.node = merged(t.node, p)
			t.hosts = append(t.hosts, newTable(p.Value).hosts...)
		case p.ApplyTo == istio.VirtualHost && p.Whole():
			h := newHost(p.Value)
			h.routes = tree.All(p.Value.Field("routes"), newRoute)
			t.hosts = append(t.hosts, h)
		case p.ApplyTo == istio.VirtualHost || p.ApplyTo == istio.HTTPRoute:
			if key := p.Host(); p.Value.There() && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
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

// newPatchedHost returns the virtual host of a match, after all patches for it.
func newPatchedHost(chain *istio.Chain, key istio.HostMatch) *virtualHost {
	h := &virtualHost{node: &tree.Missing, name: key.Name}
	names := []string{}
	var added []*route
	for _, p := range chain.Patches {
		if !p.Host().Takes(key) || !p.Value.There() {
			continue
		}
		switch {
		case p.ApplyTo == istio.VirtualHost && p.Merges():
			h.node = merged(h.node, p)
			h.policies = mergedPolicies(h.policies, p, p.Value.Field("rate_limits"))
		case p.ApplyTo == istio.HTTPRoute && p.Whole():
			added = append(added, newRoute(p.Value))
		case p.ApplyTo == istio.HTTPRoute && !slices.Contains(names, p.Route()):
			names = append(names, p.Route())
		}
	}
	if h.node.There() && !slices.Contains(names, "") {
		names = append([]string{""}, names...)
	}
	for _, name := range names {
		h.routes = append(h.routes, newPatchedRoute(chain, h, key, name))
	}
	h.routes = append(h.routes, added...)
	return h
}

// newPatchedRoute returns the route of a name, or any other one without a name, after all patches for it.
func newPatchedRoute(chain *istio.Chain, h *virtualHost, key istio.HostMatch, name string) *route {
	r := &route{node: &tree.Missing, action: &tree.Missing, fragment: true}
	for _, p := range chain.Patches {
		if p.ApplyTo == istio.HTTPRoute && p.Merges() && p.Host().Takes(key) && (p.Route() == "" || p.Route() == name) && p.Value.There() {
			r.node = merged(r.node, p)
			r.policies = mergedPolicies(r.policies, p, p.Value.At("route", "rate_limits"))
		}
	}
	r.action = r.node.Field("route")
	if !r.node.There() {
		r.node = h.node
	}
	return r
}

// merged returns a node into which a patch is merged. One that is not there becomes the value.
func merged(n *tree.Node, p *istio.Patch) *tree.Node {
	if !n.There() {
		return p.Value
	}
	return istio.Merge(n, p.Value)
}

// mergedPolicies returns rate_limits after a patch. Their nodes are those of the files.
func mergedPolicies(policies []*policy, p *istio.Patch, list *tree.Node) []*policy {
	if p.ReplacesLists() && list.There() {
		policies = nil
	}
	return slices.Concat(policies, newPolicies(list))
}
