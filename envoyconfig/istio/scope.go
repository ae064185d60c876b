package istio

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// rootNamespace is the default of meshConfig.rootNamespace, whose EnvoyFilters apply in all namespaces.
const rootNamespace = "istio-system"

// scope selects the proxies to which an EnvoyFilter applies.
type scope struct {
	// namespace is empty if the object leaves it to kubectl.
	namespace  string
	labels     map[string]string
	labelNames []string // sorted keys of labels
	// positions maps label names to positions, and "" to the position of the namespace.
	positions map[string]rules.Pos
}

func newScope(n *tree.Node) scope {
	namespace := n.At("metadata", "namespace")
	s := scope{
		namespace: namespace.Text, labels: map[string]string{}, positions: map[string]rules.Pos{"": namespace.Pos()},
	}
	if strings.ContainsAny(s.namespace, "{$") { // a variable of a template
		s.namespace = ""
	}
	for label := range n.At("spec", "workload_selector", "labels").Fields() {
		s.labels[label.Name] = label.Text
		s.positions[label.Name] = label.Pos()
	}
	for target := range n.At("spec", "target_refs").Elements() {
		name := "targetRefs of kind " + target.Field("kind").Text
		s.labels[name] = target.Field("name").Text
		s.positions[name] = target.Pos()
	}
	s.labelNames = slices.Sorted(maps.Keys(s.labels))
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

// DisjointReason returns why no listener of a proxy gets both patches, and the position in the first patch; empty if
// a listener may get both.
func (p *Patch) DisjointReason(other *Patch) (why string, at rules.Pos) {
	if p.Context != other.Context && p.Context != anyContext && other.Context != anyContext {
		return fmt.Sprintf("this patch is for context %s, the other one for %s", p.Context,
			other.Context), p.match.Field("context").Pos()
	}
	s := p.parent.scope
	o := other.parent.scope
	for _, label := range s.labelNames {
		if value, ok := o.labels[label]; ok && value != s.labels[label] {
			return fmt.Sprintf("this patch is for proxies with %s: %s, the other one for %s: %s", label,
				rules.Shorten(s.labels[label]), label, rules.Shorten(value)), s.positions[label]
		}
	}
	if !s.isRoot() && !o.isRoot() && s.namespace != o.namespace {
		return fmt.Sprintf("this patch is for proxies in the namespace %s, the other one for those in %s",
			rules.Shorten(s.namespace), rules.Shorten(o.namespace)), s.positions[""]
	}
	return "", rules.Pos{}
}

// MayShareListener reports whether a listener may get both patches.
func (p *Patch) MayShareListener(other *Patch) bool {
	why, _ := p.DisjointReason(other)
	return why == ""
}

// MissedGatewayReason returns why the patch probably does not reach the gateways of the other patch, and the position;
// empty if it may. Gateways usually run in istio-system, so a patch with the same selector in another namespace does
// not reach them.
func (p *Patch) MissedGatewayReason(other *Patch) (why string, at rules.Pos) {
	s := p.parent.scope
	o := other.parent.scope
	if p.Context != gateway && other.Context != gateway || s.isRoot() || o.namespace != rootNamespace ||
		len(o.labels) == 0 || !o.covers(s) {
		return "", rules.Pos{}
	}
	return fmt.Sprintf("this patch is for gateways in the namespace %s only, the other one also for those in %s",
		rules.Shorten(s.namespace), rootNamespace), s.positions[""]
}
