package rulefile

import (
	"regexp"
	"slices"
	"strconv"

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
					"set it to 1, or share the counters with --store, or divide the users as in kustomize/overlays/sharded and set --sharded", objectName(n), number, number)
			}
		}
	}
}

// sharesOrDivides matches an item of a command line that sets a store, or declares that each user's
// requests reach the same replica.
var sharesOrDivides = regexp.MustCompile(`^--(store(=.+)?|sharded(=(true|yes|1))?)$`)

// countsSeparately reports whether a Deployment runs sluice, other than as a sidecar, without a
// store and without --sharded.
func countsSeparately(deployment *yaml.Node) bool {
	return slices.ContainsFunc(itemsAt(deployment, "spec", "template", "spec", "containers"), func(c *yaml.Node) bool {
		isSet := func(item *yaml.Node) bool { return sharesOrDivides.MatchString(scalarAt(item)) }
		return scalarAt(c, "name") == "sluice" && !slices.ContainsFunc(itemsAt(c, "command"), isSet) &&
			!slices.ContainsFunc(itemsAt(c, "args"), isSet) && !selectsStore(itemsAt(c, "env"))
	})
}

// selectsStore reports whether environment variables select a store, as package environment of
// cmd/sluice does. The value of a variable with valueFrom is unknown; it counts as set.
func selectsStore(env []*yaml.Node) bool {
	backend := ""
	url := false
	for _, v := range env {
		switch value := scalarAt(v, "value"); scalarAt(v, "name") {
		case "BACKEND_TYPE":
			backend = value
		case "REDIS_URL":
			url = value != "" || nodeAt(v, "valueFrom") != nil
		}
	}
	return backend == "redis" || url && backend != "memory"
}

// nodeAt returns the value at a path of keys, or nil.
func nodeAt(n *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		n, _ = lookUp(n, key)
	}
	return n
}

// itemsAt returns the items of the list at a path of keys.
func itemsAt(n *yaml.Node, path ...string) []*yaml.Node {
	if n = nodeAt(n, path...); n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// scalarAt returns the scalar at a path of keys, or an empty string.
func scalarAt(n *yaml.Node, path ...string) string {
	if n = nodeAt(n, path...); n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}
