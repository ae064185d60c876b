package kustomize

import "testing"

// overlays are all overlays, each with the components that fit it.
var overlays = map[string][]string{
	"standalone": {"monitoring", "network-policy", "pdb", "tls", "topology", "rollout-on-config", "state"},
	// Its Envoy speaks no TLS to sluice.
	"sharded": {"monitoring", "network-policy", "pdb", "topology", "rollout-on-config", "state"},
	// The policy would keep it from its store.
	"store": {"monitoring", "pdb", "hpa", "topology", "rollout-on-config", "dev-valkey"},
	// Only Envoy reaches these, so they need no policy and no TLS.
	"sidecar-unix":     {"monitoring", "rollout-on-config"},
	"sidecar-loopback": {"monitoring", "rollout-on-config"},
	// Their gateways speak no TLS to sluice.
	"istio":   {"monitoring", "network-policy", "pdb", "topology", "rollout-on-config", "state"},
	"contour": {"monitoring", "network-policy", "pdb", "topology", "rollout-on-config", "state"},
	// Its rules come from AI Gateway, to which the policy would close the way.
	"envoy-ai-gateway": {"monitoring", "pdb", "topology", "state"},
	// Envoy Gateway makes the pods.
	"envoy-gateway": {},
}

// chartless are the overlays for which the chart has no mode; charts/sluice/README.md says what to do.
var chartless = map[string]bool{"envoy-gateway": true}

// combos returns each overlay with each set of components that fit it.
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

// TestCombinations builds every combination, and compares the chart with the same switches, rendered in two namespaces, with it.
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
			if !chartless[c.overlay] {
				c.compareChart(t, documents)
				c.checkNamespace(t)
			}
		})
	}
}
