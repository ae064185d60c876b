package envoyconfig

import (
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// parts returns the connection manager of all parts of configurations. What they are merged
// into is not known, and its routes are parts of routes.
func (c *Config) parts(n *tree.Node) *manager {
	if c.fragments == nil {
		c.fragments = &manager{node: n, fragments: true, table: &table{node: &tree.Missing}}
		c.managers = append(c.managers, c.fragments)
	}
	return c.fragments
}

// snippet takes in what [Snippet] makes.
func (c *Config) snippet(n *tree.Node) {
	c.judge.Expect(n, api.Snippet)
	m := c.parts(n)
	m.filters = append(m.filters, tree.All(n.Field("http_filters"), newFilter)...)
	c.resources(n.Field("clusters"))
	m.part("", newHost(n), &route{node: n, action: &tree.Missing, fragment: true})
}

// envoyFilter takes in an EnvoyFilter of Istio: each of its patches by itself.
func (c *Config) envoyFilter(n *tree.Node) {
	c.judge.Expect(n, api.EnvoyFilter)
	m := c.parts(n)
	for patch := range n.At("spec", "config_patches").Elements() {
		value := patch.At("patch", "value")
		if value.Kind != tree.Object {
			continue // it removes something
		}
		match := patch.At("match", "route_configuration", "vhost")
		host := match.Field("name").Text
		applyTo := patch.Field("apply_to").Text
		c.judge.ExpectPart(value, api.Patch+applyTo)
		switch applyTo {
		case "HTTP_FILTER":
			m.filters = append(m.filters, newFilter(value))
		case "VIRTUAL_HOST":
			// Its routes, of which nothing is known.
			m.part(host, newHost(value), &route{node: value, action: &tree.Missing, fragment: true})
		case "HTTP_ROUTE":
			r := newRoute(value)
			r.fragment = true
			m.part(host, &virtualHost{node: match}, r)
		case "CLUSTER":
			c.cluster(value)
		case "LISTENER":
			c.listener(value)
		case "EXTENSION_CONFIG":
			c.extension(value)
		}
	}
}

// part adds a part of a virtual host to those of the same name.
func (m *manager) part(name string, h *virtualHost, r *route) {
	for _, other := range m.table.hosts {
		if other.name == name {
			if other.policies = append(other.policies, h.policies...); h.node.Field("typed_per_filter_config").There() {
				other.node = h.node
			}
			other.routes = append(other.routes, r)
			return
		}
	}
	h.name, h.routes = name, []*route{r}
	m.table.hosts = append(m.table.hosts, h)
}
