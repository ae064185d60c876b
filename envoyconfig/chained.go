package envoyconfig

import (
	"maps"
	"net/netip"
	"slices"

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
	for name := range c.clusters {
		next := []string{name}
		for i := 0; i < len(next); i++ {
			n := c.clusters[next[i]]
			if n == nil {
				continue
			}
			var more []string
			for _, address := range endpoints(n) {
				more = append(more, c.proxies[address]...)
				for _, m := range at[address] {
					more = append(more, m.leadsTo()...)
					if m.hasLimits() && !slices.Contains(c.behind[name], m) {
						c.behind[name] = append(c.behind[name], m)
					}
				}
			}
			for _, other := range append(more, tree.Texts(n.At("cluster_type", "typed_config", "clusters"))...) {
				if !slices.Contains(next, other) {
					next = append(next, other)
				}
			}
		}
	}
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
	all := []string{r.action.Field("cluster").Text}
	for n := range r.action.At("weighted_clusters", "clusters").Elements() {
		all = append(all, n.Field("name").Text)
	}
	for n := range r.action.Field("request_mirror_policies").Elements() {
		all = append(all, n.Field("cluster").Text)
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
