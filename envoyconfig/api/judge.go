package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// newest is the release whose fields the messages have.
const newest Release = 40

// Release is a version of Envoy without its patch: 40 is 1.40.
type Release uint64

// String returns the release as Envoy writes it.
func (r Release) String() string { return fmt.Sprintf("1.%d", uint64(r)) }

// ReleaseOf returns the release of the Envoy that describes itself in a node, or 0.
func ReleaseOf(n *tree.Node) Release {
	version := n.At("user_agent_build_version", "version")
	if version.Field("major_number").Uint(0) != 1 {
		return 0
	}
	return Release(version.Field("minor_number").Uint(0))
}

// Judge finds what is not as Envoy's API has it. Its zero value is ready to use.
type Judge struct {
	// Wrong is what is no configuration of Envoy's.
	Wrong []error
	// strange are fields that the newest release does not have, deprecated those that it
	// rejects unless the runtime allows them.
	strange, deprecated []error
	// part says that a part of a message is looked at.
	part bool
}

// Expect judges a message, by its name, before it is read: what is no such message is wrong.
func (j *Judge) Expect(n *tree.Node, message string) {
	w, ok := messages[message]
	if !ok {
		w = anObject
	}
	j.value(n, w, "")
}

// ExpectPart judges a part of a message, which may lack what Envoy needs.
func (j *Judge) ExpectPart(n *tree.Node, message string) {
	j.part = true
	j.Expect(n, message)
	j.part = false
}

// Conclude adds to what is wrong the fields that Envoy rejects: strange ones, unless a later one
// wrote the dump, and deprecated ones, unless a running one wrote it or the runtime allows them.
func (j *Judge) Conclude(dump Release, allowsDeprecated bool) {
	if dump <= newest {
		j.Wrong = append(j.Wrong, j.strange...)
	}
	if dump == 0 && !allowsDeprecated {
		j.Wrong = append(j.Wrong, j.deprecated...)
	}
}

func (j *Judge) wrong(n *tree.Node, name, format string, args ...any) {
	j.Wrong = append(j.Wrong, fmt.Errorf("%v: %s%s", n.Pos(), name, fmt.Sprintf(format, args...)))
}

// value reports whether a value and all below is what is wanted, and calls the value by a name.
func (j *Judge) value(n *tree.Node, w want, name string) bool {
	if n.Kind == tree.Absent || n.Kind == tree.Null {
		return true
	}
	if w.list {
		return j.list(n, w, name)
	}
	if !w.tidy(n) {
		hint := ""
		if n.Kind == tree.Boolean && tree.SaysYesOrNo(n.Text) {
			hint = ": put it in quotes, without which it is true or false"
		}
		j.wrong(n, name, "found %s, want %s%s", n.Shown(), w.one, hint)
		return false
	}
	if w.named != "" {
		w = messages[w.named]
	}
	if w.any {
		typeName, inner := n.Typed()
		if inner != n && !j.value(inner, anObject, "value: ") {
			return false
		}
		n, w = inner, messages[typeName]
	}
	good := true
	for below := range n.Fields() {
		of, ok := w.fields[tree.SnakeCase(below.Name)]
		if w.values != nil {
			of, ok = *w.values, true
		}
		switch {
		case of.elsewhere != "":
			j.strange = append(j.strange, fmt.Errorf("%v: Envoy %v has no field %s here, and rejects it: put it %s", below.Pos(), newest, rules.Shorten(below.Name), of.elsewhere))
		case ok:
			good = j.value(below, of, below.Name+": ") && good
			j.noteDeprecated(below, of.instead)
		case w.closed && below.Name != "@type", misspelt(below.Name, w.fields):
			j.noteStrange(below, w.fields)
		}
	}
	return j.set(n, w, name) && good
}

// list is value for a list.
func (j *Judge) list(n *tree.Node, w want, name string) bool {
	w.list = false
	if n.Kind != tree.List {
		// Envoy takes a single value for a list of it.
		if !w.tidy(n) {
			w.one = "a list of " + w.many
			return j.value(n, w, name)
		}
		one := *n
		n.Kind, n.Text, n.Nodes = tree.List, "", []tree.Node{one}
	}
	good := true
	for i := range n.Nodes {
		good = j.value(&n.Nodes[i], w, name) && good
	}
	return good
}

// set reports whether a message has the fields that Envoy needs there, and none of two that exclude
// each other.
func (j *Judge) set(n *tree.Node, w want, name string) bool {
	good := true
	for _, field := range w.needed {
		if at := n.Field(field); !j.part && (at.Kind == tree.Absent || at.Kind == tree.Text && at.Text == "" || at.Kind == tree.List && len(at.Nodes) == 0) {
			j.wrong(n, name, "Envoy rejects it without %s: add it", field)
			good = false
		}
	}
	for _, group := range [][]string{w.oneOf, w.mostOne} {
		var there []string
		for _, field := range group {
			if n.Field(field).There() {
				there = append(there, field)
			}
		}
		if len(there) > 1 {
			j.wrong(n, name, "Envoy takes %s alone: leave out all but one", strings.Join(there, " or "))
			good = false
		}
	}
	known := slices.ContainsFunc(w.oneOf, func(field string) bool { return n.Field(field).There() })
	if len(w.oneOf) > 0 && !known && !j.part && !w.strangers(n) {
		j.wrong(n, name, "Envoy needs one of %s", strings.Join(w.oneOf, ", "))
		good = false
	}
	return good
}

// slips are the fields about rate limits of messages that may have other fields, too.
var slips = []string{"rate_limits", "include_vh_rate_limits", "typed_per_filter_config"}

// misspelt reports whether a field that a message does not have is meant for one about rate limits that it has.
func misspelt(name string, fields message) bool {
	const letters = 2
	name = tree.SnakeCase(name)
	return slices.ContainsFunc(slips, func(field string) bool {
		of, ok := fields[field]
		return ok && of.elsewhere == "" && len(field)-letters <= len(name) && len(name) <= len(field)+letters && rules.EditDistance(name, field) <= letters
	})
}

// strangers reports whether a message has fields that are not known here.
func (w want) strangers(n *tree.Node) bool {
	for below := range n.Fields() {
		if _, ok := w.fields[tree.SnakeCase(below.Name)]; w.closed && !ok {
			return true
		}
	}
	return false
}

// noteStrange notes a field that Envoy does not have.
func (j *Judge) noteStrange(n *tree.Node, fields message) {
	near := ""
	if tree.SnakeCase(n.Name) == "unit_multiplier" {
		near = ", or write the limit into the rules, which have it"
	}
	near += rules.DidYouMean(rules.Nearest(tree.SnakeCase(n.Name), slices.Sorted(maps.Keys(fields))))
	j.strange = append(j.strange, fmt.Errorf("%v: Envoy %v has no field %s here, and rejects it: leave it out%s", n.Pos(), newest, rules.Shorten(n.Name), near))
}

// noteDeprecated notes a field that Envoy rejects as deprecated.
func (j *Judge) noteDeprecated(n *tree.Node, instead string) {
	if instead != "" {
		j.deprecated = append(j.deprecated, fmt.Errorf("%v: Envoy %v rejects %s, which is deprecated: write %s", n.Pos(), newest, n.Name, instead))
	}
}
