package envoyconfig

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// fragmentManager returns the connection manager that combines all fragments. The configuration that they
// are merged into is unknown.
func (c *Config) fragmentManager(n *tree.Node) *manager {
	if c.fragments == nil {
		c.fragments = &manager{node: n, fragments: true, table: &table{node: &tree.Missing}}
		c.managers = append(c.managers, c.fragments)
	}
	return c.fragments
}

// readFragment reads a fragment smaller than a resource: a connection manager, a filter, a virtual host, a route, or
// lists of filters and rate_limits. It reports whether n is one.
func (c *Config) readFragment(n *tree.Node) bool {
	typeName, _ := n.Field("typed_config").Typed()
	filters := n.Field("http_filters").Kind == tree.List
	switch {
	case n.TypeName() == api.ConnectionManager,
		filters && (n.Field("route_config").Exists() || n.Field("rds").Exists()):
		c.managers = append(c.managers, &manager{node: n, filters: tree.Map(n.Field("http_filters"), newFilter)})
	case filters, isPolicies(n.Field("rate_limits")):
		c.readSnippet(n)
	case n.TypeName() == api.VirtualHost, n.Field("domains").Kind == tree.List && n.Field("routes").Kind == tree.List:
		h := newHost(n)
		h.routes = tree.Map(n.Field("routes"), newRoute)
		m := c.fragmentManager(n)
		m.table.hosts = append(m.table.hosts, h)
	case n.TypeName() == api.Route, n.Field("match").Kind == tree.Object && n.Field("route").Kind == tree.Object:
		r := newRoute(n)
		r.fragment = true
		c.fragmentManager(n).addFragment("", &virtualHost{node: &tree.Missing}, r)
	case typeName == api.RateLimit, typeName == api.RateLimitQuota:
		m := c.fragmentManager(n)
		m.filters = append(m.filters, newFilter(n))
	default:
		return false
	}
	return true
}

// isUnrelated reports whether n is an xDS resource that is irrelevant here, such as endpoints and secrets.
func isUnrelated(n *tree.Node) bool {
	typeName, _ := n.Typed()
	return strings.HasPrefix(typeName, "envoy.") || n.Field("cluster_name").Exists() && n.Field("endpoints").Exists() ||
		n.Field("name").Exists() && (n.Field("tls_certificate").Exists() || n.Field("validation_context").Exists() ||
			n.Field("generic_secret").Exists())
}

// isPolicies reports whether a list contains policies. Rules of the service use the same field name for other
// objects.
func isPolicies(list *tree.Node) bool {
	return list.Kind == tree.List && len(list.Nodes) > 0 && list.Nodes[0].Field("actions").Exists()
}

// readSnippet reads the output of [Snippet].
func (c *Config) readSnippet(n *tree.Node) {
	m := c.fragmentManager(n)
	m.filters = append(m.filters, tree.Map(n.Field("http_filters"), newFilter)...)
	c.readDocument(n.Field("clusters"))
	m.addFragment("", newHost(n), &route{node: n, action: &tree.Missing, fragment: true})
}

// addFragment adds a route and policies to the virtual host of the given name.
func (m *manager) addFragment(name string, h *virtualHost, r *route) {
	for _, other := range m.table.hosts {
		if other.name == name {
			other.policies = append(other.policies, h.policies...)
			if h.node.Field("typed_per_filter_config").Exists() {
				other.node = h.node
			}
			other.routes = append(other.routes, r)
			return
		}
	}
	h.name = name
	h.routes = []*route{r}
	m.table.hosts = append(m.table.hosts, h)
}

// addUnusedTables adds route configurations that no connection manager uses to the fragments.
func (c *Config) addUnusedTables() {
	for _, name := range c.tableNames {
		t := c.tables[name]
		if t.used {
			continue
		}
		if m := c.fragmentManager(t.node); len(m.table.hosts) == 0 {
			m.table = &table{node: t.node, hosts: t.hosts}
		} else {
			m.table.hosts = append(m.table.hosts, t.hosts...)
		}
	}
}

// readConfigMap reads the files of a ConfigMap that are configuration of Envoy.
func (c *Config) readConfigMap(n *tree.Node) (found bool) {
	for file := range n.Field("data").Fields() {
		roots, err := tree.ReadText(file, c.sources[file.Pos().File])
		if err != nil {
			continue // not YAML
		}
		for i := range roots {
			c.roots = append(c.roots, &roots[i])
			found = c.readDocument(&roots[i]) || found
		}
	}
	return found
}

// readPatchPolicy reads the values added by an EnvoyPatchPolicy of Envoy Gateway, each as a document.
func (c *Config) readPatchPolicy(n *tree.Node) {
	m := c.fragmentManager(n)
	for patch := range n.At("spec", "json_patches").Elements() {
		value := patch.At("operation", "value")
		if isPolicies(value) {
			lists := &virtualHost{node: &tree.Missing, policies: newPolicies(value)}
			m.addFragment("", lists, &route{node: value, action: &tree.Missing, fragment: true})
			continue
		}
		c.readDocument(value)
	}
}
