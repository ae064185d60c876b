package istio

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// rootNamespace is the one whose EnvoyFilters apply in all namespaces. meshConfig can name another.
const rootNamespace = "istio-system"

// scope is the proxies to which an EnvoyFilter applies.
type scope struct {
	// namespace is empty where the object has none, and kubectl gives it one.
	namespace string
	labels    map[string]string
	names     []string // of labels, sorted
	// places are those of the labels by their names, and that of the namespace by "".
	places map[string]rules.Pos
}

func newScope(n *tree.Node) scope {
	namespace := n.At("metadata", "namespace")
	s := scope{namespace: namespace.Text, labels: map[string]string{}, places: map[string]rules.Pos{"": namespace.Pos()}}
	if strings.ContainsAny(s.namespace, "{$") { // a variable of a template
		s.namespace = ""
	}
	for label := range n.At("spec", "workload_selector", "labels").Fields() {
		s.labels[label.Name], s.places[label.Name] = label.Text, label.Pos()
	}
	for target := range n.At("spec", "target_refs").Elements() {
		name := "targetRefs of kind " + target.Field("kind").Text
		s.labels[name], s.places[name] = target.Field("name").Text, target.Pos()
	}
	s.names = slices.Sorted(maps.Keys(s.labels))
	return s
}

// isRoot reports whether the scope has all namespaces, as far as is known.
func (s scope) isRoot() bool { return s.namespace == "" || s.namespace == rootNamespace }

// covers reports whether an EnvoyFilter of this scope applies to each proxy of the other one.
func (s scope) covers(other scope) bool {
	for label, value := range s.labels {
		if got, ok := other.labels[label]; !ok || got != value {
			return false
		}
	}
	return s.isRoot() || s.namespace == other.namespace || other.namespace == ""
}

// and returns the scope of the proxies that are in both.
func (s scope) and(other scope) scope {
	both := scope{namespace: s.namespace, labels: maps.Clone(s.labels)}
	maps.Copy(both.labels, other.labels)
	if s.isRoot() {
		both.namespace = other.namespace
	}
	return both
}

func (s scope) key() string { return fmt.Sprint(s.namespace, s.labels) }

// Differs returns why no listener of a proxy gets both patches, and the place of that in the first; empty if one may.
func (p *Patch) Differs(other *Patch) (why string, at rules.Pos) {
	if p.Context != other.Context && p.Context != anyContext && other.Context != anyContext {
		return fmt.Sprintf("this is for context %s, that for %s", p.Context, other.Context), p.match.Field("context").Pos()
	}
	s, o := p.of.scope, other.of.scope
	for _, label := range s.names {
		if value, ok := o.labels[label]; ok && value != s.labels[label] {
			return fmt.Sprintf("this is for proxies with %s: %s, that for %s: %s", label, rules.Shorten(s.labels[label]), label, rules.Shorten(value)), s.places[label]
		}
	}
	if !s.isRoot() && !o.isRoot() && s.namespace != o.namespace {
		return fmt.Sprintf("this is for proxies in the namespace %s, that in %s", rules.Shorten(s.namespace), rules.Shorten(o.namespace)), s.places[""]
	}
	return "", rules.Pos{}
}

// Meets reports whether a listener may get both patches.
func (p *Patch) Meets(other *Patch) bool {
	why, _ := p.Differs(other)
	return why == ""
}

// Strays returns why the patch probably does not reach the gateways of the other one, and the place of that: it has the
// same selector in a namespace of its own, and gateways are mostly in istio-system. It is empty otherwise.
func (p *Patch) Strays(other *Patch) (why string, at rules.Pos) {
	s, o := p.of.scope, other.of.scope
	if p.Context != gateway && other.Context != gateway || s.isRoot() || o.namespace != rootNamespace || len(o.labels) == 0 || !o.covers(s) {
		return "", rules.Pos{}
	}
	return fmt.Sprintf("this is for gateways in the namespace %s alone, and that for those in %s too", rules.Shorten(s.namespace), rootNamespace), s.places[""]
}
