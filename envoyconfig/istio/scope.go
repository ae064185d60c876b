package istio

import (
	"fmt"
	"maps"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// rootNamespace is the default of meshConfig.rootNamespace, whose EnvoyFilters apply in all namespaces.
const rootNamespace = "istio-system"

// scope selects the proxies to which an EnvoyFilter applies.
type scope struct {
	// namespace is empty if the object leaves it to kubectl.
	namespace string
	labels    map[string]string
}

func newScope(n *tree.Node) scope {
	s := scope{namespace: n.At("metadata", "namespace").Text, labels: map[string]string{}}
	if strings.ContainsAny(s.namespace, "{$") { // a variable of a template
		s.namespace = ""
	}
	for label := range n.At("spec", "workload_selector", "labels").Fields() {
		s.labels[label.Name] = label.Text
	}
	for target := range n.At("spec", "target_refs").Elements() {
		s.labels["targetRefs of kind "+target.Field("kind").Text] = target.Field("name").Text
	}
	return s
}

// isRoot reports whether the scope includes all namespaces, as far as known.
func (s scope) isRoot() bool { return s.namespace == "" || s.namespace == rootNamespace }

// covers reports whether an EnvoyFilter of this scope applies to every proxy of the other scope.
func (s scope) covers(other scope) bool {
	for label, value := range s.labels {
		if got, ok := other.labels[label]; !ok || got != value {
			return false
		}
	}
	return s.isRoot() || s.namespace == other.namespace || other.namespace == ""
}

// intersect returns the scope of the proxies in both scopes.
func (s scope) intersect(other scope) scope {
	both := scope{namespace: s.namespace, labels: maps.Clone(s.labels)}
	maps.Copy(both.labels, other.labels)
	if s.isRoot() {
		both.namespace = other.namespace
	}
	return both
}

func (s scope) key() string { return fmt.Sprint(s.namespace, s.labels) }

// MayShareListener reports whether a listener may get both patches.
func (p *Patch) MayShareListener(other *Patch) bool {
	s := p.parent.scope
	o := other.parent.scope
	for label, value := range s.labels {
		if otherValue, ok := o.labels[label]; ok && otherValue != value {
			return false
		}
	}
	sameNamespace := s.isRoot() || o.isRoot() || s.namespace == o.namespace
	return sameNamespace && (p.Context == other.Context || p.Context == anyContext || other.Context == anyContext)
}

// MissesGateways reports whether the patch probably does not reach the gateways of the other patch. Gateways usually run
// in istio-system, so a patch with the same selector in another namespace does not reach them.
func (p *Patch) MissesGateways(other *Patch) bool {
	s := p.parent.scope
	o := other.parent.scope
	return (p.Context == gateway || other.Context == gateway) && !s.isRoot() && o.namespace == rootNamespace &&
		len(o.labels) > 0 && o.covers(s)
}
