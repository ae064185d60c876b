package envoyconfig

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// The messages that are known by their @type.
const (
	connectionManager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	rateLimitFilter   = "envoy.extensions.filters.http.ratelimit.v3.RateLimit"
	perRouteConfig    = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"
	routerFilter      = "envoy.extensions.filters.http.router.v3.Router"
	filterConfig      = "envoy.config.route.v3.FilterConfig"
)

// manager is an HTTP connection manager: filters and the routes that they act on.
type manager struct {
	node *node
	// listener is the name of the one that has it; serverNames are what its filter chain
	// takes by SNI, none for all.
	listener    string
	serverNames []string
	filters     []*filter
	// table is nil where no file has the routes.
	table *table
	// fragments says that filters and routes are parts, which Istio puts somewhere.
	fragments bool
}

// filter is an HTTP filter.
type filter struct {
	node *node
	// name is what typed_per_filter_config calls it.
	name, typeName string
	// disabled says that it acts only on routes that enable it.
	disabled bool
	// config is the typed_config.
	config *node
	// policies are the rate limit filter's own rate_limits.
	policies []*policy
}

// listener takes in the connection managers of a listener.
func (c *Config) listener(l *node) {
	name := l.field("name").str()
	chains := l.field("filter_chains").elements()
	if other := l.field("default_filter_chain"); other.there() {
		chains = append(slices.Clip(chains), *other)
	}
	for i := range chains {
		filters := chains[i].field("filters").elements()
		for j := range filters {
			c.manager(filters[j].field("typed_config"), name, chains[i].at("filter_chain_match", "server_names"))
		}
	}
	c.manager(l.at("api_listener", "api_listener"), name, &missing)
}

func (c *Config) manager(n *node, listener string, serverNames *node) {
	typeName, n := unwrap(n)
	if typeName != connectionManager {
		return
	}
	m := &manager{node: n, listener: listener, serverNames: texts(serverNames)}
	filters := n.field("http_filters").elements()
	for i := range filters {
		m.filters = append(m.filters, newFilter(&filters[i]))
	}
	c.managers = append(c.managers, m)
}

func newFilter(n *node) *filter {
	f := &filter{node: n, name: n.field("name").str(), disabled: n.field("disabled").yes(false)}
	f.configure(n.field("typed_config"))
	return f
}

func (f *filter) configure(typedConfig *node) {
	f.typeName, f.config = unwrap(typedConfig)
	if f.typeName == rateLimitFilter {
		f.policies = newPolicies(f.config.field("rate_limits"))
	}
}

// resolve finds what the manager gets by xDS.
func (m *manager) resolve(c *Config) {
	if m.fragments {
		// There is no more than the parts.
	} else if inline := m.node.field("route_config"); inline.there() {
		m.table = newTable(inline)
	} else {
		m.table = c.tables[m.node.at("rds", "route_config_name").str()]
	}
	for _, f := range m.filters {
		if f.node.field("config_discovery").there() {
			if config := c.extensions[f.name]; config != nil {
				f.configure(config)
			}
		}
	}
}

// asking returns the rate limit filters that requests come to: those before the router.
func (m *manager) asking() []*filter {
	var all []*filter
	for _, f := range m.filters {
		switch f.typeName {
		case rateLimitFilter:
			all = append(all, f)
		case routerFilter:
			return all
		}
	}
	return all
}

func (f *filter) domain() string { return f.config.field("domain").str() }

func (f *filter) stage() uint64 { return f.config.field("stage").uint(0) }

// unwrap returns a message and its name. It sees through the message that carries others as
// a struct.
func unwrap(n *node) (typeName string, config *node) {
	switch name := n.typeName(); name {
	case "xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct":
		url := n.field("type_url").str()
		return url[strings.LastIndexByte(url, '/')+1:], n.field("value")
	default:
		return name, n
	}
}

// texts returns the elements of a list of text.
func texts(l *node) []string {
	var all []string
	for _, e := range l.elements() {
		all = append(all, e.str())
	}
	return all
}

// name is the manager for people.
func (m *manager) name() string {
	if m.listener == "" {
		return m.node.pos().String()
	}
	return "listener " + rules.Shorten(m.listener)
}
