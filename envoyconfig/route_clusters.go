package envoyconfig

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// validateRouteClusters rejects routes to missing clusters. Envoy checks this for inline route_configs only. Nothing
// is checked if Envoy also gets clusters from a management server, or if the files have errors.
func (c *Config) validateRouteClusters() {
	if len(c.clusters) == 0 || len(c.validator.Errors) > 0 || !c.allClusters || c.hasDump {
		return
	}
	for _, m := range c.managers {
		table := m.node.Field("route_config")
		if !table.Field("validate_clusters").Bool(true) {
			continue
		}
		for host := range table.Field("virtual_hosts").Elements() {
			for route := range host.Field("routes").Elements() {
				action := route.Field("route")
				c.validateClusterName(action.Field("cluster"))
				for cluster := range action.At("weighted_clusters", "clusters").Elements() {
					c.validateClusterName(cluster.Field("name"))
				}
				for mirror := range action.Field("request_mirror_policies").Elements() {
					c.validateClusterName(mirror.Field("cluster"))
				}
			}
		}
	}
}

func (c *Config) validateClusterName(name *tree.Node) {
	if name.Text == "" || c.clusters[name.Text] != nil {
		return
	}
	names := make([]string, 0, len(c.clusters))
	for other := range c.clusters {
		names = append(names, other)
	}
	c.validator.Reject(name, "the cluster %s of the route is not in these files, and Envoy rejects that: add it, or correct the name%s",
		name.Describe(), rules.DidYouMean(rules.Nearest(name.Text, names)))
}
