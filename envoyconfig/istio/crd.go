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

// checkFields returns an error for each field below n that the CRD does not have. path is the path of n. Kubernetes
// accepts camelCase only.
func checkFields(n *tree.Node, path string) (wrong []error) {
	names, known := knownFields[path]
	all := strings.Fields(names)
	for child := range n.Elements() {
		wrong = append(wrong, checkFields(child, path+"[]")...)
	}
	for child := range n.Fields() {
		switch {
		case !known:
		case slices.Contains(all, child.Name):
			wrong = append(wrong, checkFields(child, path+"."+child.Name)...)
		default:
			wrong = append(wrong, fmt.Errorf("%v: an EnvoyFilter has no field %s here, and Kubernetes rejects or drops it: "+
				"correct or remove it; the fields are %s%s", child.Pos(), rules.Shorten(child.Name),
				strings.Join(all, ", "),
				rules.DidYouMean(rules.Nearest(child.Name, all))))
		}
	}
	return wrong
}
