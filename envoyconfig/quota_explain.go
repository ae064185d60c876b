package envoyconfig

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Bucket is what one filter of the rate limit quota service does with a request.
type Bucket struct {
	Domain string
	// Filter is the place of the filter, and Pos that of the bucket's settings.
	Filter, Pos rules.Pos
	// None says why the request has no bucket, and passes. If that is not known, it begins with [Unknowable].
	None string
	// Wrong says why no rule can match the bucket's id, and Entries are the descriptor that it makes.
	Wrong   string
	Entries []Entry
	// Before are the filters before this one, by name, that may change the request.
	Before []string
}

// String returns the descriptor of the bucket as (key, value)(key, value).
func (b *Bucket) String() string {
	var s strings.Builder
	for _, e := range b.Entries {
		s.WriteString("(" + e.Key + ", " + e.Value + ")")
	}
	return s.String()
}

// bucket returns what the filter does with a request, whose route may be nil: it acts on requests without one, too.
func (f *filter) bucket(x *exchange, m *manager, h *virtualHost, r *route) Bucket {
	b := Bucket{Domain: f.domain(), Filter: f.node.Pos(), Before: m.before(f)}
	disabled := f.disabled
	if r != nil {
		branches := r.ways()
		_, disabled = f.perRoute(m.table, h, branches[0])
		for _, branch := range branches[1:] {
			if _, other := f.perRoute(m.table, h, branch); other != disabled {
				b.None = Unknowable + "the clusters of weighted_clusters, at " + r.action.Field("weighted_clusters").Pos().String() + ", differ"
				return b
			}
		}
	}
	if disabled {
		b.None = "the filter is disabled here"
		return b
	}
	settings, unknown := x.action(f.config.Field("bucket_matchers"))
	if unknown != "" {
		b.None = Unknowable + unknown
		return b
	}
	if settings == nil {
		b.None = "no matcher takes the request"
		return b
	}
	b.Pos = settings.Pos()
	entries, wrong, _ := (&bucket{settings: settings}).idEntries()
	if b.Wrong = wrong; wrong != "" {
		return b
	}
	for _, entry := range entries {
		value := entry.Field("string_value").Text
		if input := entry.Field("custom_value"); input.There() {
			var has bool
			if value, has, unknown = x.input(input); unknown != "" {
				b.None = Unknowable + unknown
				return b
			}
			typeName, name := source(input)
			if !has {
				b.None = "the request has no " + strings.TrimSpace(typeName[strings.LastIndexByte(typeName, '.')+1:]+" "+name) + ", of which the bucket's id is made"
				return b
			}
			if value == "" {
				b.Wrong = "the id lacks " + quoted(entry.Name) + ", since " + name + " is empty: nobody can assign the bucket anything"
			}
		}
		b.Entries = append(b.Entries, Entry{entry.Name, value})
	}
	return b
}

// action returns the typed_config of the action that a tree of matchers leads to; nil if there is none.
func (x *exchange) action(matcher *tree.Node) (settings *tree.Node, unknown string) {
	for n := range matcher.At("matcher_list", "matchers").Elements() {
		switch v := x.holds(n.Field("predicate")); {
		case v.unknown != "":
			return nil, v.unknown + ", in the matcher at " + n.Pos().String()
		case v.yes:
			if settings, unknown = x.onMatch(n.Field("on_match")); settings != nil || unknown != "" {
				return settings, unknown
			}
		}
	}
	if mt := matcher.Field("matcher_tree"); mt.There() {
		branches, unknown := x.branches(mt)
		if unknown != "" {
			return nil, unknown
		}
		for _, on := range branches {
			if settings, unknown = x.onMatch(on); settings != nil || unknown != "" {
				return settings, unknown
			}
		}
	}
	return x.onMatch(matcher.Field("on_no_match"))
}

// branches returns the branches of a matcher tree that take the request, in the order in which Envoy tries them: the
// longest prefix first. A branch whose nested matcher does not take the request leaves it to the next one.
func (x *exchange) branches(mt *tree.Node) (all []*tree.Node, unknown string) {
	value, has, unknown := x.input(mt.Field("input"))
	if unknown != "" {
		return nil, unknown
	}
	exact, prefix := mt.Field("exact_match_map"), mt.Field("prefix_match_map")
	switch {
	case !exact.There() && !prefix.There():
		return nil, "custom_match, at " + mt.Field("custom_match").Pos().String()
	case !has:
		return nil, ""
	}
	if on := exact.Field("map").Value(value); on.There() {
		all = append(all, on)
	}
	for on := range prefix.Field("map").Fields() {
		if strings.HasPrefix(value, on.Name) {
			all = append(all, on)
		}
	}
	slices.SortFunc(all, func(a, b *tree.Node) int { return cmp.Compare(len(b.Name), len(a.Name)) })
	return all, ""
}

func (x *exchange) onMatch(on *tree.Node) (settings *tree.Node, unknown string) {
	switch action := on.At("action", "typed_config"); {
	case on.Field("keep_matching").Yes(false):
		return nil, "keep_matching, at " + on.Field("keep_matching").Pos().String()
	case on.Field("matcher").There():
		return x.action(on.Field("matcher"))
	case !action.There():
		return nil, ""
	default:
		_, settings = action.Typed()
		return settings, ""
	}
}

// holds reports whether a predicate takes the request.
func (x *exchange) holds(predicate *tree.Node) verdict {
	one := predicate.Field("single_predicate")
	switch {
	case one.There():
		if !one.Field("value_match").There() {
			return verdict{unknown: "custom_match"}
		}
		value, has, unknown := x.input(one.Field("input"))
		if unknown != "" || !has {
			return verdict{unknown: unknown}
		}
		return newStringMatcher(one.Field("value_match"))(value)
	case predicate.Field("not_matcher").There():
		v := x.holds(predicate.Field("not_matcher"))
		return v.is(false)
	case predicate.Field("or_matcher").There(): // none fails to hold
		return allMatch(predicate.At("or_matcher", "predicate").Nodes, func(n tree.Node) verdict {
			v := x.holds(&n)
			return v.is(false)
		}).is(false)
	default:
		return allMatch(predicate.At("and_matcher", "predicate").Nodes, func(n tree.Node) verdict { return x.holds(&n) })
	}
}

// input returns what an input takes of the request, and whether there is any.
func (x *exchange) input(input *tree.Node) (value string, has bool, unknown string) {
	typeName, name := source(input)
	switch typeName {
	case api.HeaderInput:
		values, unknown := x.header(name)
		if unknown != "" {
			return "", false, "header " + name + ": " + unknown
		}
		return strings.Join(values, ","), len(values) > 0, ""
	case api.QueryInput:
		query := x.decodedQuery()
		value, has = query.first(name)
		return value, has, query.unknown
	case api.AddressInput:
		address, unknown := x.remote()
		return address.String(), unknown == "", unknown
	case api.DirectInput:
		if !x.Remote.IsValid() {
			return "", false, "the address that connects to Envoy: give it with --remote ADDRESS"
		}
		return x.Remote.String(), true, ""
	default:
		return "", false, "input " + typeName
	}
}
