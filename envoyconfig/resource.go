package envoyconfig

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// typicalFields identify a resource without @type: each occurs in one message only.
var typicalFields = []struct{ field, message string }{
	{"filter_chains", api.Listener},
	{"default_filter_chain", api.Listener},
	{"api_listener", api.Listener},
	{"virtual_hosts", api.RouteTable},
	{"load_assignment", api.Cluster},
	{"eds_cluster_config", api.Cluster},
	{"lb_policy", api.Cluster},
}

// isListField reports whether a typical field must be a list. Products other than Envoy have objects of the same
// names.
func isListField(field string) bool { return field == "filter_chains" || field == "virtual_hosts" }

// readResource reads an xDS resource and reports whether n is one.
func (c *Config) readResource(n *tree.Node) bool {
	message := n.TypeName()
	for _, t := range typicalFields {
		at := n.Field(t.field)
		if message == "" && at.Exists() && (at.Kind != tree.Object || !isListField(t.field)) {
			message = t.message
		}
	}
	return c.readMessage(n, message)
}

// readMessage reads an xDS resource of the given message type and reports whether it is one.
func (c *Config) readMessage(n *tree.Node, message string) bool {
	var read func(*tree.Node)
	switch message {
	case api.Listener:
		read = c.readListener
	case api.RouteTable:
		read = c.readTable
	case api.Cluster:
		read = c.readCluster
	case api.Extension:
		read = c.readExtension
	case api.Bootstrap:
		read = c.readBootstrap
	}
	if read == nil || n.Kind != tree.Object {
		return false
	}
	read(n)
	return true
}

// readListener reads the connection managers of a listener.
func (c *Config) readListener(n *tree.Node) {
	name := n.Field("name").Text
	everything := &tree.Missing // a filter chain that takes all connections
	chain := func(n *tree.Node, unused string) {
		m := manager{listener: name, unused: unused, plaintext: !n.Field("transport_socket").Exists()}
		for n := range n.Field("filters").Elements() {
			config := n.Field("typed_config")
			if typeName, inner := config.Typed(); typeName == api.NetworkRateLimit {
				m.networkFilters = append(m.networkFilters, &filter{node: config, typeName: typeName, config: inner})
			}
			c.readManager(config, &m)
		}
	}
	for of := range n.Field("filter_chains").Elements() {
		match := of.Field("filter_chain_match")
		unused := ""
		if names := match.Field("server_names"); len(tree.Texts(names)) > 0 && len(n.Field("listener_filters").Nodes) == 0 &&
			n.Field("address").Exists() && !n.Field("udp_listener_config").Exists() {
			unused = "the listener has no tls_inspector in listener_filters, so no connection has one of the server_names at " + names.Pos().String()
		} else if len(match.Nodes) == 0 && !n.Field("filter_chain_matcher").Exists() {
			everything = of
		}
		chain(of, unused)
	}
	unused := ""
	if everything.Exists() {
		unused = "the filter chain at " + everything.Pos().String() +
			" takes all connections, so none uses default_filter_chain"
	}
	chain(n.Field("default_filter_chain"), unused)
	c.readManager(n.At("api_listener", "api_listener"), &manager{listener: name})
}

// readManager reads a connection manager, whose other fields are those of base.
func (c *Config) readManager(n *tree.Node, base *manager) {
	if typeName, n := n.Typed(); typeName == api.ConnectionManager {
		c.managers = append(c.managers, &manager{
			node: n, listener: base.listener, unused: base.unused, networkFilters: base.networkFilters, plaintext: base.plaintext,
			filters: tree.Map(n.Field("http_filters"), newFilter), upgrades: newUpgrades(n, base.listener),
		})
	}
}

func (c *Config) readTable(n *tree.Node) {
	name := n.Field("name").Text
	if c.tables[name] == nil {
		c.tableNames = append(c.tableNames, name)
	}
	c.tables[name] = newTable(n)
}

func (c *Config) readCluster(n *tree.Node) { c.clusters[n.Field("name").Text] = n }

func (c *Config) readExtension(n *tree.Node) {
	c.extensions[n.Field("name").Text] = n.Field("typed_config")
}

func (c *Config) readBootstrap(n *tree.Node) {
	c.readProcess(n)
	from := n.Field("dynamic_resources")
	c.listenerSource = from.Field("lds_config")
	c.allListeners = !c.listenerSource.Exists()
	c.allClusters = !from.Field("cds_config").Exists()
	for listener := range n.At("static_resources", "listeners").Elements() {
		c.readListener(listener)
	}
	for cluster := range n.At("static_resources", "clusters").Elements() {
		c.readCluster(cluster)
	}
}

// readProcess reads the node and the runtime of a bootstrap.
func (c *Config) readProcess(n *tree.Node) {
	if cluster := n.At("node", "cluster"); cluster.Exists() {
		c.nodeCluster = cluster
	}
	if c.runtime == nil {
		c.runtime = runtimeValues{}
	}
	for layer := range n.At("layered_runtime", "layers").Elements() {
		c.runtime.addLayer(layer)
	}
}

// inactive are fields of /config_dump with resources that Envoy does not use, or that listeners contain, too.
var inactive = []string{
	"static_route_configs", "warming_state", "draining_state", "error_state", "dynamic_warming_clusters",
}

// readInside reads the values of a list or an object, such as a part of /config_dump, and reports whether it found any
// configuration. Kubernetes objects are skipped.
func (c *Config) readInside(n *tree.Node) (found bool) {
	name, isPart := strings.CutPrefix(n.TypeName(), api.DumpPart)
	switch {
	case n.Field("kind").Exists() && n.Field("api_version").Exists():
		return false
	case name == "BootstrapConfigDump": // other parts have its listeners and clusters
		c.readProcess(n.Field("bootstrap"))
		c.readVersion(n.At("bootstrap", "node"))
		return true
	case isPart:
		c.allListeners = c.allListeners || name == "ListenersConfigDump"
		c.allClusters = c.allClusters || name == "ClustersConfigDump"
		found = true
	case isUnrelated(n):
		return true
	}
	for i := range n.Nodes {
		if child := &n.Nodes[i]; !slices.Contains(inactive, tree.SnakeCase(child.Name)) {
			found = c.readDocument(child) || found
		}
	}
	return found
}
