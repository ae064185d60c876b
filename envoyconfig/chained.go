package envoyconfig

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// findChained finds the clusters whose endpoints are listeners of the same files.
func (c *Config) findChained() {
	at := map[string][]*manager{}
	for _, m := range c.managers {
		if m.address != "" {
			at[m.address] = append(at[m.address], m)
		}
	}
	c.behind = map[string][]*manager{}
	found := map[string][]*manager{} // by targets, since many clusters may have the same
	for name, n := range c.clusters {
		addresses, clusters := targetsOf(n)
		targets := strings.Join(addresses, " ") + "\x00" + strings.Join(clusters, " ")
		if _, known := found[targets]; !known {
			found[targets] = c.managersBehind(name, at)
		}
		c.behind[name] = found[targets]
	}
}

// managersBehind returns the managers with limits to which a cluster leads. at has all managers by address.
func (c *Config) managersBehind(cluster string, at map[string][]*manager) (found []*manager) {
	next := []string{cluster}
	seen := map[string]bool{cluster: true} // clusters and addresses
	add := func(names []string) {
		for _, name := range names {
			if !seen[name] {
				seen[name] = true
				next = append(next, name)
			}
		}
	}
	for len(next) > 0 {
		n := c.clusters[next[0]]
		next = next[1:]
		if n == nil {
			continue
		}
		addresses, clusters := targetsOf(n)
		add(clusters)
		for _, address := range addresses {
			if key := "\x00" + address; !seen[key] {
				seen[key] = true
				add(c.proxies[address])
				for _, m := range at[address] {
					if m.table != nil && len(m.table.clusters) == 1 { // each request takes this route
						add(m.table.clusters)
					}
					if m.hasLimits() {
						found = append(found, m)
					}
				}
			}
		}
	}
	return found
}

// targetsOf returns the endpoints of a cluster, and the clusters that it aggregates.
func targetsOf(n *tree.Node) (addresses, clusters []string) {
	return endpoints(n), tree.Texts(n.At("cluster_type", "typed_config", "clusters"))
}

// leadsTo returns the clusters of the manager's routes.
func (m *manager) leadsTo() []string {
	if m.table == nil {
		return nil
	}
	return m.table.clusters
}

// endpoints returns the addresses of a cluster.
func endpoints(n *tree.Node) (all []string) {
	for locality := range n.At("load_assignment", "endpoints").Elements() {
		for endpoint := range locality.Field("lb_endpoints").Elements() {
			if address := addressText(endpoint.At("endpoint", "address")); address != "" {
				all = append(all, address)
			}
		}
	}
	return all
}

// addressText returns an address that is equal for a listener and for the endpoints that connect to it on the same
// machine.
func addressText(n *tree.Node) string {
	socket := n.Field("socket_address")
	if !socket.Exists() {
		return n.At("pipe", "path").Text + n.At("envoy_internal_address", "server_listener_name").Text
	}
	host := socket.Field("address").Text
	ip, err := netip.ParseAddr(host)
	if err == nil && (ip.IsLoopback() || ip.IsUnspecified()) || host == "localhost" {
		host = ""
	}
	return host + ":" + socket.Field("port_value").Text
}

// clusters returns the clusters to which the route sends requests, or copies of them.
func (r *route) clusters() []string {
	all := append([]string{r.action.Field("cluster").Text}, weightedClusters(r.action)...)
	for n := range r.action.Field("request_mirror_policies").Elements() {
		share := n.Field("runtime_fraction")
		if !share.Exists() || share.At("default_value", "numerator").Uint(0) > 0 {
			all = append(all, n.Field("cluster").Text)
		}
	}
	return all
}

// weightedClusters returns the clusters of a route or TCP proxy that have a weight.
func weightedClusters(n *tree.Node) (all []string) {
	for one := range n.At("weighted_clusters", "clusters").Elements() {
		if one.Field("weight").Uint(1) > 0 {
			all = append(all, one.Field("name").Text)
		}
	}
	return all
}

// newClusters returns the clusters of all routes of virtual hosts.
func newClusters(hosts []*virtualHost) []string {
	all := map[string]bool{}
	for _, h := range hosts {
		for _, r := range h.routes {
			for _, name := range r.clusters() {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}
