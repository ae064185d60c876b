package envoyconfig

import (
	"strings"

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

// part takes in what is less than a resource: a connection manager, a filter, a virtual host, a route, or lists of
// filters and of rate_limits. It reports whether n is one.
func (c *Config) part(n *tree.Node) bool {
	typeName, _ := n.Field("typed_config").Typed()
	filters := n.Field("http_filters").Kind == tree.List
	switch {
	case n.TypeName() == api.ConnectionManager, filters && (n.Field("route_config").There() || n.Field("rds").There()):
		c.judge.Expect(n, api.ConnectionManager)
		c.managers = append(c.managers, &manager{node: n, filters: tree.All(n.Field("http_filters"), newFilter)})
	case filters, isPolicies(n.Field("rate_limits")):
		c.snippet(n)
	case n.TypeName() == api.VirtualHost, n.Field("domains").Kind == tree.List && n.Field("routes").Kind == tree.List:
		c.judge.Expect(n, api.VirtualHost)
		h := newHost(n)
		h.routes = tree.All(n.Field("routes"), newRoute)
		m := c.parts(n)
		m.table.hosts = append(m.table.hosts, h)
	case n.TypeName() == api.Route, n.Field("match").Kind == tree.Object && n.Field("route").Kind == tree.Object:
		c.judge.Expect(n, api.Route)
		r := newRoute(n)
		r.fragment = true
		c.parts(n).part("", &virtualHost{node: &tree.Missing}, r)
	case typeName == api.RateLimit, typeName == api.RateLimitQuota:
		m := c.parts(n)
		m.filters = append(m.filters, newFilter(n))
	default:
		return isOther(n)
	}
	return true
}

// isOther reports whether n is a resource of xDS that is of no account here, such as endpoints and secrets.
func isOther(n *tree.Node) bool {
	typeName, _ := n.Typed()
	return strings.HasPrefix(typeName, "envoy.") || n.Field("cluster_name").There() && n.Field("endpoints").There() ||
		n.Field("name").There() && (n.Field("tls_certificate").There() || n.Field("validation_context").There() || n.Field("generic_secret").There())
}

// isGloo reports whether n is a virtual host of a Proxy of Gloo, or has a list of them. Their routes have matchers in place
// of match.
func isGloo(n *tree.Node) bool {
	if hosts := n.Field("virtual_hosts"); hosts.Kind == tree.List && len(hosts.Nodes) > 0 {
		n = &hosts.Nodes[0]
	}
	routes := n.Field("routes")
	return routes.Kind == tree.List && len(routes.Nodes) > 0 && routes.Nodes[0].Field("matchers").There()
}

// isPolicies reports whether a list is one of actions, which rules have under the same name otherwise.
func isPolicies(list *tree.Node) bool {
	return list.Kind == tree.List && len(list.Nodes) > 0 && list.Nodes[0].Field("actions").There()
}

// snippet takes in what [Snippet] makes.
func (c *Config) snippet(n *tree.Node) {
	c.judge.Expect(n, api.Snippet)
	m := c.parts(n)
	m.filters = append(m.filters, tree.All(n.Field("http_filters"), newFilter)...)
	c.resources(n.Field("clusters"))
	m.part("", newHost(n), &route{node: n, action: &tree.Missing, fragment: true})
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

// loose makes parts of the route configurations that no connection manager in these files has.
func (c *Config) loose() {
	for _, name := range c.tableNames {
		t := c.tables[name]
		if t.used {
			continue
		}
		if m := c.parts(t.node); len(m.table.hosts) == 0 {
			m.table = &table{node: t.node, hosts: t.hosts}
		} else {
			m.table.hosts = append(m.table.hosts, t.hosts...)
		}
	}
}

// wrapped takes in what stands somewhere below fields that are not Envoy's, as tools print configurations, and
// reports whether there is any. In an object of Kubernetes there is none.
func (c *Config) wrapped(n *tree.Node) (found bool) {
	if n.Field("kind").There() && n.Field("api_version").There() {
		return false
	}
	for f := range n.Fields() {
		found = c.document(f) || found
	}
	return found
}

// configMap takes in the files of a ConfigMap, those that are configuration of Envoy.
func (c *Config) configMap(n *tree.Node) (found bool) {
	for file := range n.Field("data").Fields() {
		roots, err := tree.ReadText(file, c.sources[file.Pos().File])
		if err != nil {
			continue // it is no YAML, or not of Envoy
		}
		for i := range roots {
			c.roots = append(c.roots, &roots[i])
			found = c.document(&roots[i]) || found
		}
	}
	return found
}

// patchPolicy takes in an EnvoyPatchPolicy of Envoy Gateway: each value that it adds, by itself.
func (c *Config) patchPolicy(n *tree.Node) {
	m := c.parts(n)
	for patch := range n.At("spec", "json_patches").Elements() {
		value := patch.At("operation", "value")
		if isPolicies(value) {
			lists := &virtualHost{node: &tree.Missing, policies: newPolicies(value)}
			m.part("", lists, &route{node: value, action: &tree.Missing, fragment: true})
			continue
		}
		c.document(value)
	}
}
