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

// scope says to which proxies an EnvoyFilter applies.
type scope struct {
	// namespace is empty where the object has none, and kubectl gives it one.
	namespace string
	labels    map[string]string
	// places are those of the namespace and of the labels, by their names.
	places map[string]rules.Pos
}

func newScope(n *tree.Node) scope {
	namespace := n.At("metadata", "namespace")
	s := scope{namespace: namespace.Text, labels: map[string]string{}, places: map[string]rules.Pos{"": namespace.Pos()}}
	if strings.Contains(s.namespace, "{") || strings.Contains(s.namespace, "$") { // a variable of a template
		s.namespace = ""
	}
	for label := range n.At("spec", "workload_selector", "labels").Fields() {
		s.labels[label.Name], s.places[label.Name] = label.Text, label.Pos()
	}
	for target := range n.At("spec", "target_refs").Elements() {
		name := "targetRefs of kind " + target.Field("kind").Text
		s.labels[name], s.places[name] = target.Field("name").Text, target.Pos()
	}
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

// differs returns why no proxy is in both scopes, and the place of that in this one; empty if one may be.
func (s scope) differs(other scope) (why string, at rules.Pos) {
	for _, label := range slices.Sorted(maps.Keys(s.labels)) {
		if value, ok := other.labels[label]; ok && value != s.labels[label] {
			return fmt.Sprintf("this is for proxies with %s: %s, that for %s: %s", label, rules.Shorten(s.labels[label]), label, rules.Shorten(value)), s.places[label]
		}
	}
	if !s.isRoot() && !other.isRoot() && s.namespace != other.namespace {
		return fmt.Sprintf("this is for proxies in the namespace %s, that in %s", rules.Shorten(s.namespace), rules.Shorten(other.namespace)), s.places[""]
	}
	return "", rules.Pos{}
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
	return p.Of.scope.differs(other.Of.scope)
}

// Meets reports whether a listener may get both patches.
func (p *Patch) Meets(other *Patch) bool {
	why, _ := p.Differs(other)
	return why == ""
}

// Misplaced returns why the patch probably does not reach the gateways of the other one: it has the same
// selector in a namespace of its own, and gateways are mostly in istio-system; empty otherwise.
func (p *Patch) Misplaced(other *Patch) (why string, at rules.Pos) {
	s, o := p.Of.scope, other.Of.scope
	if p.Context != gateway && other.Context != gateway || s.isRoot() || o.namespace != rootNamespace || len(o.labels) == 0 || !o.covers(s) {
		return "", rules.Pos{}
	}
	return fmt.Sprintf("this is for gateways in the namespace %s alone, and that for those in %s too", rules.Shorten(s.namespace), rootNamespace), s.places[""]
}

// HostMatch is the virtual hosts that a patch is for; all of them without a name and a domain.
type HostMatch struct{ Name, Domain string }

// Takes reports whether a patch with this match applies to the hosts of another match.
func (m HostMatch) Takes(other HostMatch) bool {
	return (m.Name == "" || m.Name == other.Name) && (m.Domain == "" || m.Domain == other.Domain)
}

// Host returns the virtual hosts that a patch is for.
func (p *Patch) Host() HostMatch {
	host := p.match.At("route_configuration", "vhost")
	return HostMatch{host.Field("name").Text, host.Field("domain_name").Text}
}

// Route returns the name of the route that a patch is for; empty for all.
func (p *Patch) Route() string {
	return p.match.At("route_configuration", "vhost", "route", "name").Text
}
