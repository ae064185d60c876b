package istio

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// shape has the fields of an object, and the shape below each; nil where that may be anything.
type shape map[string]shape

// objectShape is the schema of the CRD. Kubernetes knows camelCase alone.
var objectShape = shape{
	"apiVersion": nil, "kind": nil, "metadata": nil, "status": nil,
	"spec": {
		"workloadSelector": {"labels": nil},
		"targetRefs":       {"group": nil, "kind": nil, "name": nil, "namespace": nil},
		"priority":         nil,
		"configPatches": {
			"applyTo": nil,
			"match": {
				"context": nil,
				"proxy":   {"proxyVersion": nil, "metadata": nil},
				"listener": {
					"portNumber": nil, "portName": nil, "name": nil, "listenerFilter": nil,
					"filterChain": {
						"name": nil, "sni": nil, "transportProtocol": nil, "applicationProtocols": nil, "destinationPort": nil,
						"filter": {"name": nil, "subFilter": {"name": nil}},
					},
				},
				"routeConfiguration": {
					"portNumber": nil, "portName": nil, "gateway": nil, "name": nil,
					"vhost": {"name": nil, "domainName": nil, "route": {"name": nil, "action": nil}},
				},
				"cluster":  {"portNumber": nil, "service": nil, "subset": nil, "name": nil},
				"waypoint": nil,
			},
			"patch": {"operation": nil, "value": nil, "filterClass": nil},
		},
	},
}

// check adds an error for each field below n that the shape does not have.
func (s shape) check(n *tree.Node, wrong *[]error) {
	for below := range n.Elements() {
		s.check(below, wrong)
	}
	for below := range n.Fields() {
		of, known := s[below.Name]
		switch {
		case !known:
			*wrong = append(*wrong, fmt.Errorf("%v: an EnvoyFilter has no field %s here, and Kubernetes rejects or drops it: %s", below.Pos(), rules.Shorten(below.Name), s.remedy(below.Name)))
		case of != nil:
			of.check(below, wrong)
		}
	}
}

// remedy returns the change that makes a field known.
func (s shape) remedy(name string) string {
	names := slices.Sorted(maps.Keys(s))
	for _, camel := range names {
		if tree.SnakeCase(camel) == name {
			return "write " + camel
		}
	}
	if near := rules.Nearest(name, names); len(near) > 0 {
		return "correct or remove it" + rules.DidYouMean(near)
	}
	if parent := s.parentOf(name); parent != "" {
		return "put it into " + parent
	}
	return "remove it; the fields are " + strings.Join(names, ", ")
}

// parentOf returns the path of the first object below that has the field; empty if none has it.
func (s shape) parentOf(name string) string {
	for _, field := range slices.Sorted(maps.Keys(s)) {
		if _, ok := s[field][name]; ok {
			return field
		}
	}
	for _, field := range slices.Sorted(maps.Keys(s)) {
		if parent := s[field].parentOf(name); parent != "" {
			return field + "." + parent
		}
	}
	return ""
}
