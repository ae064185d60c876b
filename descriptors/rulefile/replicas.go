package rulefile

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// warnSeparateReplicas warns of Deployments whose replicas of sluice count separately, by their own
// number of replicas or that of an autoscaler.
func (p *parser) warnSeparateReplicas() {
	numbers := slices.Clone(p.objects.deployments)
	for _, scaler := range p.objects.autoscalers {
		if slices.ContainsFunc(p.objects.deployments, func(d *yaml.Node) bool {
			return scalarAt(d, "metadata", "name") == scalarAt(scaler, "spec", "scaleTargetRef", "name") &&
				scalarAt(d, "metadata", "namespace") == scalarAt(scaler, "metadata", "namespace")
		}) {
			numbers = append(numbers, scaler)
		}
	}
	for _, n := range numbers {
		for _, field := range []string{"replicas", "maxReplicas"} {
			count := nodeAt(n, "spec", field)
			if number, err := strconv.Atoi(scalarAt(count)); err == nil && number > 1 {
				p.warn(rules.Replicas, "", count, "%s has up to %d replicas that count separately, so together they grant %d times each limit; "+
					"set it to 1, or share the counters with --store, or divide the users as in kustomize/overlays/sharded", objectName(n), number, number)
			}
		}
	}
}

// countsSeparately reports whether a Deployment runs sluice, other than as a sidecar, without a
// store.
func countsSeparately(deployment *yaml.Node) bool {
	containers := nodeAt(deployment, "spec", "template", "spec", "containers")
	return containers != nil && slices.ContainsFunc(containers.Content, func(c *yaml.Node) bool {
		return scalarAt(c, "name") == "sluice" && !hasItem(nodeAt(c, "args"), "--store=") && !hasItem(nodeAt(c, "env"), "REDIS_URL")
	})
}

// hasItem reports whether an item of a list, or its name, begins with a prefix.
func hasItem(list *yaml.Node, prefix string) bool {
	return list != nil && slices.ContainsFunc(list.Content, func(item *yaml.Node) bool {
		return strings.HasPrefix(scalarAt(item)+scalarAt(item, "name"), prefix)
	})
}

// nodeAt returns the value at a path of keys, or nil.
func nodeAt(n *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		n, _ = lookUp(n, key)
	}
	return n
}

// scalarAt returns the scalar at a path of keys, or an empty string.
func scalarAt(n *yaml.Node, path ...string) string {
	if n = nodeAt(n, path...); n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}
