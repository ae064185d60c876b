package envoyconfig

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// tellingFields are those that only one message has. They tell a resource that lacks its @type.
var tellingFields = []struct{ field, message string }{
	{"filter_chains", api.Listener},
	{"default_filter_chain", api.Listener},
	{"api_listener", api.Listener},
	{"virtual_hosts", api.RouteTable},
	{"load_assignment", api.Cluster},
	{"eds_cluster_config", api.Cluster},
	{"lb_policy", api.Cluster},
}

// isList reports whether a telling field is a list. Others than Envoy have objects under such names.
func isList(field string) bool { return field == "filter_chains" || field == "virtual_hosts" }

// resource takes in a resource of xDS, and reports whether it is one.
func (c *Config) resource(n *tree.Node) bool {
	message := n.TypeName()
	for _, t := range tellingFields {
		at := n.Field(t.field)
		if message == "" && at.There() && (at.Kind != tree.Object || !isList(t.field)) {
			message = t.message
		}
	}
	return c.take(n, message)
}

// take takes in a resource of xDS whose message is known, and reports whether it is one.
func (c *Config) take(n *tree.Node, message string) bool {
	var read func(*tree.Node)
	switch message {
	case api.Listener:
		read = c.listener
	case api.RouteTable:
		read = c.table
	case api.Cluster:
		read = c.cluster
	case api.Extension:
		read = c.extension
	case api.Bootstrap:
		read = c.bootstrap
	}
	if read == nil || n.Kind != tree.Object {
		return false
	}
	c.judge.Expect(n, message)
	read(n)
	return true
}

// resources takes in a list of resources, and reports whether any is one, also if it is of no account here. Each may
// stand in an envoy.service.discovery.v3.Resource.
func (c *Config) resources(list *tree.Node) (found bool) {
	for n := range list.Elements() {
		if inner := n.Field("resource"); inner.There() {
			n = inner
		}
		found = c.resource(n) || isOther(n) || found
	}
	return found
}

// listener takes in the connection managers of a listener.
func (c *Config) listener(n *tree.Node) {
	name := n.Field("name").Text
	chain := func(n *tree.Node) {
		var connections []*filter
		for n := range n.Field("filters").Elements() {
			config := n.Field("typed_config")
			if typeName, inner := config.Typed(); typeName == api.NetworkRateLimit {
				connections = append(connections, &filter{node: config, typeName: typeName, config: inner})
			}
			c.manager(config, name, connections)
		}
	}
	for n := range n.Field("filter_chains").Elements() {
		chain(n)
	}
	chain(n.Field("default_filter_chain"))
	c.manager(n.At("api_listener", "api_listener"), name, nil)
}

func (c *Config) manager(n *tree.Node, listener string, connections []*filter) {
	if typeName, n := n.Typed(); typeName == api.ConnectionManager {
		m := &manager{node: n, listener: listener, filters: tree.All(n.Field("http_filters"), newFilter), upgrades: newUpgrades(n, listener), connections: connections}
		c.managers = append(c.managers, m)
	}
}

func (c *Config) table(n *tree.Node) {
	name := n.Field("name").Text
	if c.tables[name] == nil {
		c.tableNames = append(c.tableNames, name)
	}
	c.tables[name] = newTable(n)
}

func (c *Config) cluster(n *tree.Node) { c.clusters[n.Field("name").Text] = n }

func (c *Config) extension(n *tree.Node) {
	c.extensions[n.Field("name").Text] = n.Field("typed_config")
}

// bootstrap takes in a bootstrap.
func (c *Config) bootstrap(n *tree.Node) {
	c.process(n)
	from := n.Field("dynamic_resources")
	c.fromElsewhere = from.Field("lds_config")
	c.allListeners = !c.fromElsewhere.There()
	c.allClusters = !from.Field("cds_config").There()
	for listener := range n.At("static_resources", "listeners").Elements() {
		c.listener(listener)
	}
	for cluster := range n.At("static_resources", "clusters").Elements() {
		c.cluster(cluster)
	}
}

// process takes in what a bootstrap says of Envoy's process.
func (c *Config) process(n *tree.Node) {
	if cluster := n.At("node", "cluster"); cluster.There() {
		c.nodeCluster = cluster
	}
	if c.runtime == nil {
		c.runtime = runtimeValues{}
	}
	for layer := range n.At("layered_runtime", "layers").Elements() {
		c.runtime.layer(layer)
	}
	for key, value := range c.runtime {
		switch {
		case key == formatterFeature:
			c.formatted = value.Yes(false)
		case strings.HasPrefix(key, "envoy.deprecated_features:") || key == "envoy.features.enable_all_deprecated_features":
			c.allowsDeprecated = c.allowsDeprecated || value.Yes(false)
		}
	}
}
