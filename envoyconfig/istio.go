package envoyconfig

// parts returns the connection manager of all parts of configurations. What they are merged
// into is not known, and its routes are parts of routes.
func (c *Config) parts(n *node) *manager {
	if c.patched == nil {
		c.patched = &manager{node: n, fragments: true, table: &table{node: &missing}}
		c.managers = append(c.managers, c.patched)
	}
	return c.patched
}

// snippet takes in what [Snippet] makes.
func (c *Config) snippet(n *node) {
	c.expect(n, snippetMessage)
	m := c.parts(n)
	filters := n.field("http_filters").elements()
	for i := range filters {
		m.filters = append(m.filters, newFilter(&filters[i]))
	}
	c.resources(n.field("clusters"))
	m.part("", newHost(n), &route{node: n, action: &missing, fragment: true})
}

// envoyFilter takes in an EnvoyFilter of Istio: each of its patches by itself.
func (c *Config) envoyFilter(n *node) {
	c.expect(n, envoyFilterMessage)
	m := c.parts(n)
	patches := n.at("spec", "config_patches").elements()
	for i := range patches {
		value := patches[i].at("patch", "value")
		if value.kind != object {
			continue // it removes something
		}
		match := patches[i].at("match", "route_configuration", "vhost")
		host := match.field("name").str()
		applyTo := patches[i].field("apply_to").str()
		c.expectPart(value, patchMessages[applyTo])
		switch applyTo {
		case "HTTP_FILTER":
			m.filters = append(m.filters, newFilter(value))
		case "VIRTUAL_HOST":
			// Its routes, of which nothing is known.
			m.part(host, newHost(value), &route{node: value, action: &missing, fragment: true})
		case "HTTP_ROUTE":
			r := newRoute(value)
			r.fragment = true
			m.part(host, &virtualHost{node: match}, r)
		case "CLUSTER":
			c.clusters[value.field("name").str()] = value
		case "LISTENER":
			c.listener(value)
		case "EXTENSION_CONFIG":
			c.extensions[value.field("name").str()] = value.field("typed_config")
		}
	}
}

// part adds a part of a virtual host to those of the same name.
func (m *manager) part(name string, h *virtualHost, r *route) {
	for _, other := range m.table.hosts {
		if other.name == name {
			if other.policies = append(other.policies, h.policies...); h.node.field("typed_per_filter_config").there() {
				other.node = h.node
			}
			other.routes = append(other.routes, r)
			return
		}
	}
	h.name, h.routes = name, []*route{r}
	m.table.hosts = append(m.table.hosts, h)
}
