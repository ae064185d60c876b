package istio

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// knownFields are the fields of the CRD's objects by path. Objects without an entry may have any fields.
var knownFields = map[string]string{
	"":                                     "apiVersion kind metadata spec status",
	".spec":                                "configPatches priority targetRefs workloadSelector",
	".spec.workloadSelector":               "labels",
	".spec.configPatches[]":                "applyTo match patch",
	".spec.configPatches[].patch":          "filterClass operation value",
	".spec.configPatches[].match":          "cluster context listener proxy routeConfiguration waypoint",
	".spec.configPatches[].match.cluster":  "name portNumber service subset",
	".spec.configPatches[].match.proxy":    "metadata proxyVersion",
	".spec.configPatches[].match.listener": "filterChain listenerFilter name portName portNumber",
	".spec.configPatches[].match.listener.filterChain":                  "applicationProtocols destinationPort filter name sni transportProtocol",
	".spec.configPatches[].match.listener.filterChain.filter":           "name subFilter",
	".spec.configPatches[].match.listener.filterChain.filter.subFilter": "name",
	".spec.configPatches[].match.routeConfiguration":                    "gateway name portName portNumber vhost",
	".spec.configPatches[].match.routeConfiguration.vhost":              "domainName name route",
	".spec.configPatches[].match.routeConfiguration.vhost.route":        "action name",
}

// objectLists are the paths of lists of objects, and numbers the paths of integers.
var (
	objectLists = []string{".spec.configPatches", ".spec.targetRefs"}
	numbers     = []string{
		".spec.priority", ".spec.configPatches[].match.cluster.portNumber", ".spec.configPatches[].match.listener.portNumber",
		".spec.configPatches[].match.listener.filterChain.destinationPort", ".spec.configPatches[].match.routeConfiguration.portNumber",
	}
)

// checkFields returns an error for each field below n that the CRD does not have, and for each value of the wrong kind.
// path is the path of n. Kubernetes accepts camelCase only.
func checkFields(n *tree.Node, path string) (wrong []error) {
	names, known := knownFields[path]
	want := ""
	switch {
	case n.Kind == tree.Null:
	case slices.Contains(objectLists, path):
		if n.Kind != tree.List {
			want = "a list of objects"
		}
	case known && n.Kind != tree.Object:
		want = "an object"
	case slices.Contains(numbers, path) && n.Kind != tree.Number:
		want = "a whole number"
	}
	if want != "" {
		return []error{fmt.Errorf("%v: %s: found %s, want %s", n.Pos(), n.Name, n.Describe(), want)}
	}
	for child := range n.Elements() {
		wrong = append(wrong, checkFields(child, path+"[]")...)
	}
	for child := range n.Fields() {
		if all := strings.Fields(names); known && !slices.Contains(all, child.Name) {
			wrong = append(wrong, fmt.Errorf("%v: an EnvoyFilter has no field %s here, and Kubernetes rejects or drops it: %s", child.Pos(), rules.Shorten(child.Name), remedy(child.Name, path, all)))
		} else if known {
			wrong = append(wrong, checkFields(child, path+"."+child.Name)...)
		}
	}
	return wrong
}

// remedy returns how to correct the unknown field name of the object at path, which has the given
// fields.
func remedy(name, path string, fields []string) string {
	near := rules.Nearest(name, fields)
	for _, field := range fields {
		switch {
		case tree.SnakeCase(field) == name:
			return "write " + field
		case len(near) == 0 && slices.Contains(strings.Fields(knownFields[path+"."+field]+" "+knownFields[path+"."+field+"[]"]), name):
			return "put it into " + field
		}
	}
	return "correct or remove it; the fields are " + strings.Join(fields, ", ") + rules.DidYouMean(near)
}
