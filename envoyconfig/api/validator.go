package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Validator collects errors. Its zero value is ready to use.
type Validator struct {
	// Errors are the values of a wrong kind, and Unknown the fields that the API does not have.
	Errors, Unknown []error
}

// Validate validates a message of the given type before it is read, and normalizes values that Envoy accepts in several
// forms. A message of an unknown type can be any object.
func (val *Validator) Validate(n *tree.Node, message string) {
	val.validateMessage(n, message, "")
}

// validateMessage validates an object. label is the prefix of errors about the object itself.
func (val *Validator) validateMessage(n *tree.Node, message, label string) {
	if n.Kind == tree.Absent || n.Kind == tree.Null {
		return
	}
	if n.Kind != tree.Object {
		val.reportWrongKind(n, label, kinds["object"].want)
		return
	}
	fields := messages()[message]
	for i := range n.Nodes {
		child := &n.Nodes[i]
		f, known := fields[tree.SnakeCase(child.Name)]
		switch {
		case known:
			val.validateField(child, f)
		case fields != nil && child.Name != "@type":
			val.reportUnknownField(child, message)
		}
	}
}

// validateField validates the value of a field.
func (val *Validator) validateField(n *tree.Node, f field) {
	switch {
	case n.Kind == tree.Null:
	case f.isList:
		if n.Kind != tree.List { // Envoy accepts a single value in place of a list
			one := *n
			n.Kind = tree.List
			n.Text = ""
			n.Nodes = []tree.Node{one}
		}
		for i := range n.Nodes {
			val.validateValue(&n.Nodes[i], f, n.Name+": ")
		}
	case f.isMap && n.Kind != tree.Object:
		val.reportWrongKind(n, n.Name+": ", kinds["object"].want)
	case f.isMap:
		for i := range n.Nodes {
			val.validateValue(&n.Nodes[i], f, n.Nodes[i].Name+": ")
		}
	default:
		val.validateValue(n, f, n.Name+": ")
	}
}

// validateValue validates one value of a field.
func (val *Validator) validateValue(n *tree.Node, f field, label string) {
	k, isKind := kinds[f.typeName]
	switch {
	case n.Kind == tree.Null:
	case !isKind:
		val.validateMessage(n, f.typeName, label)
	case !k.accepts(n):
		val.reportWrongKind(n, label, k.want)
	case f.typeName == "any":
		typeName, inner := n.Typed()
		val.validateMessage(inner, typeName, label)
		if messages()[typeName] == nil && strings.HasPrefix(typeName, "envoy.extensions.filters.http.rate") {
			val.Unknown = append(val.Unknown, fmt.Errorf("%v: Envoy %v has no message %s, and rejects it: write type.googleapis.com/%s",
				n.Field("@type").Pos(), schemaRelease, rules.Shorten(typeName), RateLimit))
		}
	}
}

func (val *Validator) reportWrongKind(n *tree.Node, label, want string) {
	if n.Kind == tree.Boolean && tree.IsYAML11Bool(n.Text) {
		want += ": quote it; unquoted it is a boolean"
	}
	val.Errors = append(val.Errors, fmt.Errorf("%v: %sfound %s, want %s", n.Pos(), label, n.Describe(), want))
}

// reportUnknownField reports a field that Envoy does not have.
func (val *Validator) reportUnknownField(n *tree.Node, message string) {
	name := tree.SnakeCase(n.Name)
	remedy, ok := misplacedFields[message+"."+name]
	if !ok {
		names := slices.Sorted(maps.Keys(messages()[message]))
		remedy = "remove it" + rules.DidYouMean(rules.Nearest(name, names))
	}
	val.Unknown = append(val.Unknown, fmt.Errorf("%v: Envoy %v has no field %s here, and rejects it: %s",
		n.Pos(), schemaRelease, rules.Shorten(n.Name), remedy))
}

// Finish returns all errors. An Envoy of another release, which wrote a dump, may have other fields.
func (val *Validator) Finish(dump Release) []error {
	if dump != 0 && dump != schemaRelease {
		return val.Errors
	}
	return slices.Concat(val.Errors, val.Unknown)
}

// misplacedFields maps fields that Envoy does not have to the place where they belong.
var misplacedFields = map[string]string{
	RouteTable + ".rate_limits": "put it into a virtual host or a route",
	VirtualHost + ".route": "put it into an element of routes; in an EnvoyFilter put its rate_limits into value, " +
		"or write applyTo: HTTP_ROUTE",
	Route + ".rate_limits": "put it below route, next to cluster",
}
