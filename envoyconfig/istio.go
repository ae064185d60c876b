package envoyconfig

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/istio"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// readEnvoyFilter reads an EnvoyFilter of Istio. Its patches are applied when all files have been read.
func (c *Config) readEnvoyFilter(n *tree.Node) {
	f := istio.Read(n)
	c.envoyFilters = append(c.envoyFilters, f)
	c.patches = append(c.patches, f.Patches...)
	for _, p := range f.Patches {
		if p.Value.Kind == tree.Object {
			c.readPatch(p)
		}
	}
}

// readPatch reads the value of a patch that is a resource.
func (c *Config) readPatch(p *istio.Patch) {
	p.AddsFilter = addsFilter(p)
	p.AddsPolicies = addsPolicies(p)
	switch {
	case p.ApplyTo == istio.Cluster && !p.IsMerge():
		c.readCluster(p.Value)
	case p.ApplyTo == istio.Listener:
		c.readListener(p.Value)
	case p.ApplyTo == istio.ExtensionConfig:
		c.readExtension(p.Value)
	}
}

// applyPatches adds a connection manager for each kind of listener that the EnvoyFilters distinguish. Each also gets
// the other fragments, because it is unknown which listener these belong to.
func (c *Config) applyPatches() {
	if len(c.envoyFilters) == 0 {
		return
	}
	parts := c.fragmentManager(c.envoyFilters[0].Node)
	chains := istio.Chains(c.envoyFilters)
	if len(chains) == 0 {
		return
	}
	c.managers = slices.DeleteFunc(c.managers, func(m *manager) bool { return m == parts })
	for i, chain := range chains {
		m := &manager{
			node: parts.node, fragments: true, chain: chain, filters: slices.Clone(parts.filters), table: newPatchedTable(chain),
		}
		m.table.hosts = append(m.table.hosts, parts.table.hosts...)
		m.table.node = istio.Merge(parts.table.node, m.table.node)
		for _, added := range chain.HTTPFilters() {
			f := newFilter(added)
			if f.name == istio.Router && f.typeName == "" {
				f.typeName = api.Router
			}
			m.filters = append(m.filters, f)
		}
		c.resolveFilters(m)
		if i == 0 {
			c.fragments = m
		}
		c.managers = append(c.managers, m)
	}
}

// addsFilter reports whether a patch adds or changes a rate limit filter.
func addsFilter(p *istio.Patch) bool {
	typeName, _ := p.Value.Field("typed_config").Typed()
	return p.ApplyTo == istio.HTTPFilter && (typeName == api.RateLimit || typeName == api.RateLimitQuota || isLocal(p))
}

// isLocal reports whether a patch adds or changes a local rate limit filter.
func isLocal(p *istio.Patch) bool {
	typeName, _ := p.Value.Field("typed_config").Typed()
	return typeName == api.LocalRateLimit
}

// addsPolicies reports whether a patch adds rate_limits to routes, or per-route configuration of the rate limit
// filter.
func addsPolicies(p *istio.Patch) bool {
	if p.ApplyTo == istio.HTTPFilter {
		return false
	}
	found := len(p.Value.Field("rate_limits").Nodes)+len(p.Value.At("route", "rate_limits").Nodes) > 0
	p.Value.Field("typed_per_filter_config").Walk(func(n *tree.Node) {
		typeName, _ := n.Typed()
		found = found || typeName == api.RateLimitPerRoute
	})
	return found
}
