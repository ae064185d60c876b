package kustomize

import "testing"

// overlays are all overlays, with the components that each supports.
var overlays = map[string][]string{
	"standalone": {"monitoring", "network-policy", "pdb", "tls", "topology", "rollout-on-config", "state"},
	// Its Envoy does not use TLS for sluice.
	"sharded": {"monitoring", "network-policy", "pdb", "topology", "rollout-on-config", "state"},
	// network-policy would block connections to the store.
	"store": {"monitoring", "pdb", "hpa", "topology", "rollout-on-config", "dev-valkey"},
	// Only Envoy reaches these, so they need neither a policy nor TLS.
	"sidecar-unix":     {"monitoring", "rollout-on-config"},
	"sidecar-loopback": {"monitoring", "rollout-on-config"},
	// Their gateways do not use TLS for sluice.
	"istio":   {"monitoring", "network-policy", "pdb", "topology", "rollout-on-config", "state"},
	"contour": {"monitoring", "network-policy", "pdb", "topology", "rollout-on-config", "state"},
	// Its rules come from AI Gateway, which network-policy would block.
	"envoy-ai-gateway": {"monitoring", "pdb", "topology", "state"},
	// Envoy Gateway creates the pods.
	"envoy-gateway": {},
}

// noChartMode are the overlays without a mode of the chart; charts/sluice/README.md describes the alternative.
var noChartMode = map[string]bool{"envoy-gateway": true}

// combos returns each overlay with each set of components that it supports.
func combos() []combo {
	var all []combo
	for overlay, fitting := range overlays {
		for set := range 1 << len(fitting) {
			c := combo{overlay: overlay}
			for i, component := range fitting {
				if set>>i&1 == 1 {
					c.components = append(c.components, component)
				}
			}
			all = append(all, c)
		}
	}
	return all
}

// TestCombinations builds every combination, and compares it with the chart, rendered with the same options in two
// namespaces.
func TestCombinations(t *testing.T) {
	t.Parallel()
	for _, c := range combos() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			documents, err := manifests.build(c.files())
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range decode(documents).examine() {
				t.Error(found)
			}
			if !noChartMode[c.overlay] {
				c.compareChart(t, documents)
				c.checkNamespace(t)
			}
		})
	}
}
