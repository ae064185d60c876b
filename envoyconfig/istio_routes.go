package envoyconfig

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/envoyconfig/istio"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// newPatchedTable returns the routes that the patches of a chain apply to, as far as the patches determine them: a
// virtual host for each distinct match, with a route for each matched route name and one for all others.
func newPatchedTable(chain istio.Chain) *table {
	t := &table{node: &tree.Missing}
	var keys []istio.HostMatch
	hosts := positions[istio.HostMatch]{}
	for i, p := range chain {
		switch {
		case !p.Value.Exists():
		case p.ApplyTo == istio.RouteConfiguration:
			t.node = istio.Merge(t.node, p.Value)
			t.hosts = append(t.hosts, newTable(p.Value).hosts...)
		case p.ApplyTo == istio.VirtualHost && !p.IsMerge():
			h := newHost(p.Value)
			h.routes = tree.Map(p.Value.Field("routes"), newRoute)
			t.hosts = append(t.hosts, h)
		case p.ApplyTo == istio.VirtualHost, p.ApplyTo == istio.HTTPRoute:
			key := p.HostMatch()
			if len(hosts[key]) == 0 {
				keys = append(keys, key)
			}
			hosts[key] = append(hosts[key], i)
		}
	}
	for _, key := range keys {
		var patches []*istio.Patch
		for _, i := range hosts.indexes(key, istio.HostMatch{Name: key.Name}, istio.HostMatch{Domain: key.Domain},
			istio.HostMatch{}) {
			patches = append(patches, chain[i])
		}
		t.hosts = append(t.hosts, newPatchedHost(patches, key))
	}
	if len(t.hosts) == 0 && t.node.Exists() {
		t.hosts = []*virtualHost{{
			node: &tree.Missing, routes: []*route{{node: t.node, action: &tree.Missing, fragment: true}},
		}}
	}
	return t
}

// positions maps a match to the indexes of its patches.
type positions[K comparable] map[K][]int

// indexes returns the sorted indexes of the patches with any of the given matches.
func (x positions[K]) indexes(matches ...K) (all []int) {
	for _, match := range matches {
		all = append(all, x[match]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// newPatchedHost returns the virtual host of a match after all patches. Its policies keep the nodes of the files,
// which the checks use as keys.
func newPatchedHost(patches []*istio.Patch, key istio.HostMatch) *virtualHost {
	h := &virtualHost{node: &tree.Missing, name: key.Name}
	var added []*istio.Patch
	names := []string{}
	routes := positions[string]{}
	for i, p := range patches {
		switch {
		case p.ApplyTo == istio.VirtualHost && p.IsMerge():
			h.node = istio.Merge(h.node, p.Value)
			h.policies = append(h.policies, newPolicies(p.Value.Field("rate_limits"))...)
		case p.ApplyTo == istio.HTTPRoute && p.IsMerge():
			name := p.RouteName()
			routes[name] = append(routes[name], i)
			names = append(names, name)
		case p.ApplyTo == istio.HTTPRoute:
			added = append(added, p)
		}
	}
	if h.node.Exists() {
		names = append(names, "")
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		r := &route{node: &tree.Missing, fragment: true}
		for _, i := range routes.indexes("", name) {
			r.node = istio.Merge(r.node, patches[i].Value)
			r.policies = append(r.policies, newPolicies(patches[i].Value.At("route", "rate_limits"))...)
		}
		r.action = r.node.Field("route")
		if !r.node.Exists() {
			r.node = h.node
		}
		h.routes = append(h.routes, r)
	}
	for _, p := range added {
		h.routes = append(h.routes, newRoute(p.Value))
	}
	return h
}
