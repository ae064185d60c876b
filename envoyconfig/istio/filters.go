package istio

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// generated are the names of the HTTP filters that istiod adds to a connection manager, in their
// order. Not each chain has each of them.
var generated = []string{
	"istio.metadata_exchange", "envoy.filters.http.ext_authz", "envoy.filters.http.jwt_authn", "istio_authn", "envoy.filters.http.rbac",
	"envoy.filters.http.ext_proc", "envoy.filters.http.grpc_web", "envoy.filters.http.grpc_stats", "istio.alpn", "envoy.filters.http.fault",
	"envoy.filters.http.cors", "istio.stats", "envoy.filters.http.stateful_session", Router,
}

// Filter is an HTTP filter of a chain.
type Filter struct {
	*tree.Node
	// Part says that the filter is in no file, but only what is merged into it.
	Part bool
}

// HTTPFilters returns the filters of the chain after all patches. The values of patches are nodes of
// files; generated filters have a name alone, and no place. A filter is put before the router where
// istiod does not find its neighbour, which [Patch.Idle] reports.
func (c *Chain) HTTPFilters() []Filter {
	var filters []Filter
	for _, name := range generated {
		filters = append(filters, Filter{&tree.Node{Kind: tree.Object, Nodes: []tree.Node{{Name: "name", Kind: tree.Text, Text: name}}}, true})
	}
	for _, p := range c.Patches {
		if p.ApplyTo == HTTPFilter {
			filters = p.place(filters)
		}
	}
	for _, p := range c.Patches {
		if p.ApplyTo == HTTPFilter && p.Operation == merge && p.Value.There() {
			filters = p.mergeInto(filters)
		}
	}
	return filters
}

// place carries out all operations but merges.
func (p *Patch) place(filters []Filter) []Filter {
	sub, added := p.subFilter().Text, Filter{Node: p.Value}
	at := indexOf(filters, sub)
	switch p.Operation {
	case add:
		return append(filters, added)
	case insertFirst:
		return slices.Insert(filters, 0, added)
	case insertFore, insertAfter, replace:
		switch {
		case sub == "" && p.Operation == insertFore:
			return slices.Insert(filters, 0, added)
		case sub == "" && p.Operation == insertAfter:
			return append(filters, added)
		case at < 0:
			return slices.Insert(filters, max(indexOf(filters, Router), 0), added)
		case p.Operation == insertFore:
			return slices.Insert(filters, at, added)
		case p.Operation == insertAfter:
			return slices.Insert(filters, at+1, added)
		}
		filters[at] = added
	case remove:
		if sub != "" {
			return slices.DeleteFunc(filters, func(f Filter) bool { return f.Field("name").Text == sub })
		}
	}
	return filters
}

// mergeInto merges the value into the filters that match. Where none of them is in the files, the value stands
// for the one that it is merged into.
func (p *Patch) mergeInto(filters []Filter) []Filter {
	sub, found := p.subFilter().Text, false
	typed := p.Value.Field("typed_config")
	for i, f := range filters {
		if config := f.Field("typed_config"); config.There() && config.TypeName() == typed.TypeName() && (sub == "" || f.Field("name").Text == sub) {
			merged := *f.Node
			merged.Nodes = slices.Clone(f.Nodes)
			filters[i].Node = &merged
			for j := range merged.Nodes {
				if merged.Nodes[j].Is("typed_config") {
					merged.Nodes[j] = *Merge(config, typed)
				}
			}
			found = true
		}
	}
	if !found && typed.There() {
		return slices.Insert(filters, max(indexOf(filters, Router), 0), Filter{p.Value, true})
	}
	return filters
}

// indexOf returns the place of the first filter of a name; -1 if there is none.
func indexOf(filters []Filter, name string) int {
	return slices.IndexFunc(filters, func(f Filter) bool { return f.Field("name").Text == name })
}

func (p *Patch) subFilter() *tree.Node {
	return p.match.At("listener", "filter_chain", "filter", "sub_filter", "name")
}

// Merge returns what protobuf's merge makes of two objects: the fields of both, where lists are joined, and
// objects merged unless they are of a type of their own. It has the place of the first.
func Merge(into, from *tree.Node) *tree.Node {
	merged := *into
	merged.Nodes = slices.Clone(into.Nodes)
	for f := range from.Fields() {
		i := slices.IndexFunc(merged.Nodes, func(n tree.Node) bool { return n.Is(tree.SnakeCase(f.Name)) || n.Name == f.Name })
		switch {
		case i < 0:
			merged.Nodes = append(merged.Nodes, *f)
		case f.Kind == tree.List && merged.Nodes[i].Kind == tree.List:
			merged.Nodes[i].Nodes = slices.Concat(merged.Nodes[i].Nodes, f.Nodes)
		case f.Kind == tree.Object && merged.Nodes[i].Kind == tree.Object && !f.Field("@type").There():
			merged.Nodes[i] = *Merge(&merged.Nodes[i], f)
		default:
			merged.Nodes[i] = *f
		}
	}
	return &merged
}
