package envoyconfig

import (
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

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
