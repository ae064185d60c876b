package envoyconfig

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// snippetAdvice names the expression that handles every ending of a request.
const snippetAdvice = "use the expression that sluice envoy snippet prints"

// celValue matches a value of the dynamic metadata in a CEL expression.
var celValue = regexp.MustCompile(`filter_metadata\[['"]([^'"]+)['"]\](?:\.([A-Za-z_][A-Za-z0-9_]*)|\[['"]([^'"]+)['"]\])`)

// metadataValue is a value of the dynamic metadata.
type metadataValue struct{ namespace, key string }

// readFormat reads the command of hits_addend.format, and the values of the metadata that it reads.
func (p *policy) readFormat() {
	found := anyCommand.FindStringSubmatch(p.node.At("hits_addend", "format").Text)
	if found == nil {
		return
	}
	p.command = found[1]
	p.argument = found[2]
	switch p.command {
	case "DYNAMIC_METADATA":
		path := strings.Split(p.argument+":", ":")
		p.readValues = []metadataValue{{path[0], path[1]}}
	case "CEL", "TYPED_CEL":
		for _, found := range celValue.FindAllStringSubmatch(p.argument, -1) {
			if v := (metadataValue{found[1], cmp.Or(found[2], found[3])}); !slices.Contains(p.readValues, v) {
				p.readValues = append(p.readValues, v)
			}
		}
	}
}

// reserves returns the names of the limits of e that reserve hits, and whether one of them charges a
// reservation whose cost is unknown.
func (e *leasePolicy) reserves() (names []string, keeps bool) {
	for _, r := range e.rules {
		for _, l := range reservations(r) {
			names = append(names, l.Name)
			keeps = keeps || !l.Policy.Reserve.ReleasesWithoutCost()
		}
	}
	return names, keeps
}

// checkCosts checks an element that reports the cost of reservations at the end of a stream. same are the elements with
// the same actions.
func (k *checker) checkCosts(m *manager, f *filter, e *leasePolicy, same []*leasePolicy) {
	names, keeps := e.reserves()
	if !e.streamDone || !e.own || len(names) == 0 || e.releases != "" {
		return
	}
	format := e.node.At("hits_addend", "format")
	name := e.command
	if name == "RESPONSE_CODE" {
		k.report(Leases, rules.Error, format.Pos(), "%s would be charged as the cost: %s, which reads response.code",
			format.Text, snippetAdvice)
	}
	readsLease := slices.ContainsFunc(e.readValues, func(v metadataValue) bool {
		return v.namespace == f.namespace() && slices.Contains(names, leaseLimit(v.key, names))
	})
	for _, v := range e.readValues {
		isLease := slices.Contains(names, leaseLimit(v.key, names))
		isOther := v.namespace == filterNamespace || isLease && !readsLease // if it is in another namespace
		if v.namespace == f.namespace() {
			isOther = !isLease
		}
		if name != "DYNAMIC_METADATA" && isOther { // checkReleasedLease reports others
			k.report(Leases, rules.Error, format.Pos(), "the expression reads %s of %s, but the lease of %s is %s of %s: without it, the cost of a request is not sent",
				rules.Shorten(v.key), rules.Shorten(v.namespace), e.rules[0].Path(), names[0], f.namespace())
		}
		if at := m.defaultCost(v); name == "DYNAMIC_METADATA" && at.Exists() {
			k.report(Leases, rules.Warning, format.Pos(), "a denied request gets this cost by %s at %v, too, so that Envoy makes a second call for it: %s", at.Name, at.Pos(), snippetAdvice)
		}
	}
	mayBeMissing := slices.Contains([]string{"DYNAMIC_METADATA", "CEL", "TYPED_CEL", "RESP", "RESPONSE_HEADER"}, name)
	readsResponse := func(o *leasePolicy) bool {
		return strings.Contains(o.node.At("hits_addend", "format").Text, "response.code")
	}
	if keeps && mayBeMissing && !slices.ContainsFunc(same, readsResponse) {
		k.report(Leases, rules.Warning, e.node.Pos(), "no cost of %s reads response.code, so responses without a cost, as in an outage of the backend, are charged their reservations: %s", e.rules[0].Path(), snippetAdvice)
	}
}

// defaultCost returns the field on_missing or on_error that sets a value of 0 or 1.
func (m *manager) defaultCost(v metadataValue) *tree.Node {
	for _, f := range m.filters {
		for _, w := range f.responseWrites(v) {
			if (w.at.HasName("on_missing") || w.at.HasName("on_error")) && w.at.Field("value").Uint(2) < 2 {
				return w.at
			}
		}
	}
	return &tree.Missing
}

// responseWrites returns the writes of a value by json_to_metadata or sse_to_metadata.
func (f *filter) responseWrites(v metadataValue) []keyWrite {
	if responseNamespace(f) == "" {
		return nil
	}
	all, _ := f.keyWrites(v.namespace)
	return slices.DeleteFunc(all, func(w keyWrite) bool { return w.key != v.key || !w.atResponse })
}

// checkStartHits checks the hits of an element for the start of a request, which acquires no lease of
// l if it has any. It reports whether there is a finding.
func (k *checker) checkStartHits(hits *tree.Node, r *descriptors.Rule, l *descriptors.Limit) bool {
	switch {
	case !hits.Exists():
		return false
	case l.Policy.Reserve != nil:
		k.report(Leases, rules.Error, hits.Pos(), "with hits_addend, %s at %v takes this element for the cost of a request and reserves nothing: remove hits_addend at the start", r.Path(), l.Pos)
	case hits.Field("number").Uint(1) > 0 && hasSettlement(r):
		k.report(Leases, rules.Error, hits.Pos(), "with hits_addend, %s takes this element for the cost of a request, which acquires no permit of the limit at %v: remove hits_addend at the start", r.Path(), l.Pos)
	default:
		return false
	}
	return true
}
