package istio

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Router is the name of the last HTTP filter of every connection manager.
const Router = "envoy.filters.http.router"

// generatedFilters are the names of the HTTP filters that istiod adds to connection managers, in order. A chain need
// not have all of them.
var generatedFilters = []string{
	"istio.metadata_exchange", "envoy.filters.http.ext_authz", "envoy.filters.http.jwt_authn", "istio_authn", "envoy.filters.http.rbac",
	"envoy.filters.http.ext_proc", "envoy.filters.http.grpc_web", "envoy.filters.http.grpc_stats", "istio.alpn", "envoy.filters.http.fault",
	"envoy.filters.http.cors", "istio.stats", "envoy.filters.http.stateful_session", Router,
}

// HTTPFilters returns the filters of the chain after all patches. A filter added by istiod has a name only and no
// position. If the files do not contain the filter that a patch refers to, the patch's value is put before the
// router, so that it is still checked.
func (c Chain) HTTPFilters() (filters []*tree.Node) {
	for _, name := range generatedFilters {
		filters = append(filters,
			&tree.Node{Kind: tree.Object, Nodes: []tree.Node{{Name: "name", Kind: tree.Text, Text: name}}})
	}
	for _, merges := range []bool{false, true} { // istiod merges after all insertions
		for _, p := range c {
			if p.ApplyTo == HTTPFilter && p.IsMerge() == merges {
				filters = p.apply(filters)
			}
		}
	}
	return filters
}

// apply returns the filters after the patch. The first case that applies decides.
func (p *Patch) apply(filters []*tree.Node) []*tree.Node {
	indexOf := func(name string) int {
		return slices.IndexFunc(filters, func(f *tree.Node) bool { return f.Field("name").Text == name })
	}
	sub := p.subFilter().Text
	at := indexOf(sub)
	switch {
	case p.Operation == remove:
		return slices.DeleteFunc(filters, func(f *tree.Node) bool { return sub != "" && f.Field("name").Text == sub })
	case !p.Value.Exists():
	// without another filter's name, at the beginning or the end
	case p.Operation == insertFirst, p.Operation == insertBefore && sub == "":
		return slices.Insert(filters, 0, p.Value)
	case p.Operation == add, p.Operation == insertAfter && sub == "":
		return append(filters, p.Value)
	// the files do not contain the named filter, or not its configuration
	case at < 0, p.IsMerge() && !filters[at].Field("typed_config").Exists():
		return slices.Insert(filters, max(indexOf(Router), 0), p.Value)
	case p.Operation == insertBefore:
		return slices.Insert(filters, at, p.Value)
	case p.Operation == insertAfter:
		return slices.Insert(filters, at+1, p.Value)
	case p.IsMerge():
		filters[at] = Merge(filters[at], p.Value)
	default:
		filters[at] = p.Value
	}
	return filters
}

// Merge merges two objects as protobuf does: fields that are objects are merged recursively unless their types
// differ. Lists are replaced. The result has the position of into, if that exists.
func Merge(into, from *tree.Node) *tree.Node {
	if !into.Exists() {
		return from
	}
	merged := *into
	merged.Nodes = slices.Clone(into.Nodes)
	for f := range from.Fields() {
		i := slices.IndexFunc(merged.Nodes,
			func(n tree.Node) bool { return tree.SnakeCase(n.Name) == tree.SnakeCase(f.Name) })
		switch {
		case i < 0:
			merged.Nodes = append(merged.Nodes, *f)
		case f.Kind == tree.Object && merged.Nodes[i].Kind == tree.Object && merged.Nodes[i].TypeName() == f.TypeName():
			merged.Nodes[i] = *Merge(&merged.Nodes[i], f)
		default:
			merged.Nodes[i] = *f
		}
	}
	return &merged
}
