package envoyconfig

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Bucket is the decision of a rate limit quota filter for a request.
type Bucket struct {
	Domain string
	// Filter is the position of the filter, and Pos that of the bucket's settings.
	Filter, Pos rules.Pos
	// NoBucket is the reason why the request has no bucket and is allowed; empty if it has one. It begins with
	// [UnknownPrefix] if that is unknown.
	NoBucket string
	// Invalid is the reason why no rule can match the bucket's ID; otherwise Entries is the ID's descriptor.
	Invalid string
	Entries []Entry
	// FiltersBefore are the names of the filters before this one that may change the request.
	FiltersBefore []string
}

// String formats the descriptor as (key, value)(key, value).
func (b *Bucket) String() string {
	var s strings.Builder
	for _, e := range b.Entries {
		s.WriteString("(" + e.Key + ", " + e.Value + ")")
	}
	return s.String()
}

// bucketOf returns the filter's bucket for a request. r may be nil, because the filter also runs for requests without
// a route.
func (f *filter) bucketOf(x *exchange, m *manager, h *virtualHost, r *route) Bucket {
	b := Bucket{Domain: f.domain(), Filter: f.node.Pos(), FiltersBefore: m.filtersBefore(f)}
	disabled := f.disabled
	if r != nil {
		branches := r.branchesOrSelf()
		_, disabled = f.perRoute(m.table, h, branches[0])
		for _, branch := range branches[1:] {
			if _, other := f.perRoute(m.table, h, branch); other != disabled {
				b.NoBucket = UnknownPrefix + "the clusters of weighted_clusters, at " + r.action.Field("weighted_clusters").Pos().String() + ", configure the filter differently"
				return b
			}
		}
	}
	if disabled {
		b.NoBucket = "the filter is disabled here"
		return b
	}
	settings, unknown := x.matchAction(f.config.Field("bucket_matchers"))
	if unknown != "" {
		b.NoBucket = UnknownPrefix + unknown
		return b
	}
	if settings == nil {
		b.NoBucket = "no matcher matches the request"
		return b
	}
	b.Pos = settings.Pos()
	entries, wrong, _ := (&bucket{settings: settings}).idEntries()
	if b.Invalid = wrong; wrong != "" {
		return b
	}
	for _, entry := range entries {
		value := entry.Field("string_value").Text
		if input := entry.Field("custom_value"); input.Exists() {
			var has bool
			if value, has, unknown = x.inputValue(input); unknown != "" {
				b.NoBucket = UnknownPrefix + unknown
				return b
			}
			typeName, name := inputSource(input)
			if !has {
				b.NoBucket = "the request has no " + strings.TrimSpace(typeName[strings.LastIndexByte(typeName, '.')+1:]+" "+name) + ", which the bucket's id requires"
				return b
			}
			if value == "" {
				b.Invalid = "the id lacks " + quote(entry.Name) + ", since " + name + " is empty: the bucket gets no assignment"
			}
		}
		b.Entries = append(b.Entries, Entry{entry.Name, value})
	}
	return b
}

// matchAction returns the typed_config of the action that a matcher tree selects; nil if it selects none.
func (x *exchange) matchAction(matcher *tree.Node) (settings *tree.Node, unknown string) {
	for n := range matcher.At("matcher_list", "matchers").Elements() {
		switch v := x.matchPredicate(n.Field("predicate")); {
		case v.unknown != "":
			return nil, v.unknown + ", in the matcher at " + n.Pos().String()
		case v.yes:
			if settings, unknown = x.resolveOnMatch(n.Field("on_match")); settings != nil || unknown != "" {
				return settings, unknown
			}
		}
	}
	if mt := matcher.Field("matcher_tree"); mt.Exists() {
		branches, unknown := x.matchBranches(mt)
		if unknown != "" {
			return nil, unknown
		}
		for _, on := range branches {
			if settings, unknown = x.resolveOnMatch(on); settings != nil || unknown != "" {
				return settings, unknown
			}
		}
	}
	return x.resolveOnMatch(matcher.Field("on_no_match"))
}

// matchBranches returns the branches of a matcher tree that match the request, in the order in which Envoy tries
// them: the longest prefix first. If the nested matcher of a branch does not match, the next branch is tried.
func (x *exchange) matchBranches(mt *tree.Node) (all []*tree.Node, unknown string) {
	value, has, unknown := x.inputValue(mt.Field("input"))
	if unknown != "" {
		return nil, unknown
	}
	exact, prefix := mt.Field("exact_match_map"), mt.Field("prefix_match_map")
	switch {
	case !exact.Exists() && !prefix.Exists():
		return nil, "custom_match, at " + mt.Field("custom_match").Pos().String()
	case !has:
		return nil, ""
	}
	if on := exact.Field("map").Value(value); on.Exists() {
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

func (x *exchange) resolveOnMatch(on *tree.Node) (settings *tree.Node, unknown string) {
	switch action := on.At("action", "typed_config"); {
	case on.Field("keep_matching").Bool(false):
		return nil, "keep_matching, at " + on.Field("keep_matching").Pos().String()
	case on.Field("matcher").Exists():
		return x.matchAction(on.Field("matcher"))
	case !action.Exists():
		return nil, ""
	default:
		_, settings = action.Typed()
		return settings, ""
	}
}

// matchPredicate reports whether a predicate matches the request.
func (x *exchange) matchPredicate(predicate *tree.Node) verdict {
	one := predicate.Field("single_predicate")
	switch {
	case one.Exists():
		if !one.Field("value_match").Exists() {
			return verdict{unknown: "custom_match"}
		}
		value, has, unknown := x.inputValue(one.Field("input"))
		if unknown != "" || !has {
			return verdict{unknown: unknown}
		}
		return newStringMatcher(one.Field("value_match"))(value)
	case predicate.Field("not_matcher").Exists():
		v := x.matchPredicate(predicate.Field("not_matcher"))
		return v.equals(false)
	case predicate.Field("or_matcher").Exists(): // not (all predicates fail)
		return allMatch(predicate.At("or_matcher", "predicate").Nodes, func(n tree.Node) verdict {
			v := x.matchPredicate(&n)
			return v.equals(false)
		}).equals(false)
	default:
		return allMatch(predicate.At("and_matcher", "predicate").Nodes, func(n tree.Node) verdict { return x.matchPredicate(&n) })
	}
}

// inputValue returns the value of a matcher input, and whether the request has one.
func (x *exchange) inputValue(input *tree.Node) (value string, has bool, unknown string) {
	typeName, name := inputSource(input)
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
		address, unknown := x.clientAddress()
		return address.String(), unknown == "", unknown
	case api.DirectInput:
		if !x.Remote.IsValid() {
			return "", false, "the address of the peer that connects to Envoy: set it with --remote ADDRESS"
		}
		return x.Remote.String(), true, ""
	default:
		return "", false, "input " + typeName
	}
}
