package envoyconfig

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// bucket is a bucket action in the matcher tree of a quota filter.
type bucket struct {
	// settings is the RateLimitQuotaBucketSettings, or another action, which makes no bucket.
	settings *tree.Node
	isBucket bool
	// guards are the conditions that all requests of the bucket satisfy.
	guards []guard
	// keepMatching is the keep_matching field if it is true, or missing.
	keepMatching *tree.Node
}

// guard is an input whose value satisfies a StringMatcher.
type guard struct {
	input *tree.Node
	value *tree.Node
	exact bool // the input equals a key of exact_match_map
}

// buckets returns all buckets of a matcher tree, in the order of the tree.
func buckets(matcher *tree.Node, guards []guard) (all []bucket) {
	addBucket := func(n *tree.Node, more ...guard) {
		guards := slices.Concat(guards, more)
		if child := n.Field("matcher"); child.Exists() {
			all = append(all, buckets(child, guards)...)
		}
		if action := n.At("action", "typed_config"); action.Exists() {
			typeName, settings := action.Typed()
			b := bucket{
				settings: settings, isBucket: typeName == api.QuotaBucket, guards: guards, keepMatching: &tree.Missing,
			}
			if keep := n.Field("keep_matching"); keep.Bool(false) {
				b.keepMatching = keep
			}
			all = append(all, b)
		}
	}
	for n := range matcher.At("matcher_list", "matchers").Elements() {
		addBucket(n.Field("on_match"), guardsOf(n.Field("predicate"))...)
	}
	mt := matcher.Field("matcher_tree")
	for n := range mt.At("exact_match_map", "map").Fields() {
		addBucket(n, guard{input: mt.Field("input"), exact: true})
	}
	for n := range mt.At("prefix_match_map", "map").Fields() {
		addBucket(n)
	}
	addBucket(matcher.Field("on_no_match"))
	return all
}

// guardsOf returns the conditions that every request matched by a predicate satisfies.
func guardsOf(predicate *tree.Node) (all []guard) {
	if one := predicate.Field("single_predicate"); one.Field("value_match").Exists() {
		all = append(all, guard{input: one.Field("input"), value: one.Field("value_match")})
	}
	for child := range predicate.At("and_matcher", "predicate").Elements() {
		all = append(all, guardsOf(child)...)
	}
	return all
}

// inputSource returns the type of an input, and the name of its header or query parameter.
func inputSource(input *tree.Node) (typeName, name string) {
	typeName, config := input.Field("typed_config").Typed()
	if typeName == api.HeaderInput {
		return typeName, strings.ToLower(config.Field("header_name").Text)
	}
	return typeName, config.Field("query_param").Text
}

// isGuarded reports whether the guards restrict a client's value to ID values that can be assigned a quota: present, at
// most 512 bytes, and printable.
func (b *bucket) isGuarded(input *tree.Node) bool {
	typeName, name := inputSource(input)
	return slices.ContainsFunc(b.guards, func(g guard) bool {
		guarded, guardedName := inputSource(g.input)
		return guarded == typeName && guardedName == name &&
			(g.exact || g.value.Field("exact").Text != "" || isAssignable(g.value.Field("safe_regex")))
	})
}

// isAssignable reports whether a regular expression matches none of some values that cannot be assigned a quota.
func isAssignable(regex *tree.Node) bool {
	unassignable := []string{"", strings.Repeat("a", 513), strings.Repeat("0", 513), "\x7f"}
	return regex.Exists() &&
		!slices.ContainsFunc(unassignable, func(value string) bool { return newRegex(regex)(value).yes })
}

// quotaOrder is the key of the bucket ID entry that lists the other keys in the order of the descriptor.
const quotaOrder = "sluice"

// assignable is a regular expression for client values in bucket IDs. Requests with other IDs, such as binary ones, may
// not be limited, since no service can assign a quota to them.
const assignable = `"[!-~]{1,200}"`

// idEntries returns the entries of a bucket's ID in the order given by its entry [quotaOrder]. wrong is the reason
// why no rule can match the ID; empty if a rule may match it. at is the position of the problem.
func (b *bucket) idEntries() (entries []*tree.Node, wrong string, at *tree.Node) {
	const maxEntries = 16
	id := b.settings.At("bucket_id_builder", "bucket_id_builder")
	order := id.Value(quotaOrder)
	switch {
	case !id.Exists():
		return nil, "the bucket has no bucket_id_builder, so Envoy never reports it, and no_assignment_behavior applies forever", b.settings
	case !order.Exists():
		return nil, "the id has no entry " + quotaOrder +
			", so no rule matches it, and an id with an empty value gets no assignment: " +
			"add the entry, with the other keys in the order of the descriptor: " + quotaOrder +
			`: { string_value: "path,user" }`, id
	case !order.Field("string_value").Exists():
		return nil, "the entry " + quotaOrder + " must be the same for all requests: use string_value", order
	case len(id.Nodes) > maxEntries:
		return nil, "the id has more than 16 entries, and gets no assignment: use fewer", id
	}
	names := strings.Split(order.Field("string_value").Text, ",")
	others := []string{}
	for entry := range id.Fields() {
		if entry.Name != quotaOrder {
			others = append(others, entry.Name)
		}
	}
	slices.Sort(others)
	if !slices.Equal(slices.Sorted(slices.Values(names)), others) {
		return nil, "the entry " + quotaOrder + " does not name each other entry once, so no rule matches the id: name " + quote(strings.Join(others, ",")) + ", in the order of the descriptor", order
	}
	for _, name := range names {
		entries = append(entries, id.Value(name))
	}
	return entries, "", order
}

// idForms returns the known parts of the entries of an ID.
func idForms(entries []*tree.Node) []descriptors.Form {
	forms := make([]descriptors.Form, len(entries))
	for i, entry := range entries {
		value := entry.Field("string_value")
		forms[i] = descriptors.Form{
			Key: entry.Name, Value: value.Text, AnyValue: !value.Exists() || strings.Contains(value.Text, placeholder),
		}
	}
	return forms
}
