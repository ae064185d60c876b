package api

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// rule is a rule of protoc-gen-validate, such as min_len=1.
type rule struct{ name, value string }

// constraints are the supported rules by name: a function that reports whether a value meets the rule, and a
// description of the valid values. Other rules, such as strict, modify these.
var constraints = map[string]struct {
	meets func(n *tree.Node, value string) bool
	want  string
}{
	"required":  {func(n *tree.Node, _ string) bool { return n.Exists() }, "a value"},
	"const":     {func(n *tree.Node, value string) bool { return n.Text == value }, "%s"},
	"lt":        {compareAmount(func(a, b float64) bool { return a < b }), "less than %s"},
	"lte":       {compareAmount(func(a, b float64) bool { return a <= b }), "up to %s"},
	"gt":        {compareAmount(func(a, b float64) bool { return a > b }), "more than %s"},
	"gte":       {compareAmount(func(a, b float64) bool { return a >= b }), "from %s on"},
	"min_len":   {compareCount(runeCount, func(a, b float64) bool { return a >= b }), "of at least %s characters"},
	"max_len":   {compareCount(runeCount, func(a, b float64) bool { return a <= b }), "of at most %s characters"},
	"min_bytes": {compareCount(byteCount, func(a, b float64) bool { return a >= b }), "of at least %s bytes"},
	"max_bytes": {compareCount(byteCount, func(a, b float64) bool { return a <= b }), "of at most %s bytes"},
	"min_items": {compareCount(elementCount, func(a, b float64) bool { return a >= b }), "of at least %s"},
	"max_items": {compareCount(elementCount, func(a, b float64) bool { return a <= b }), "of at most %s"},
	"min_pairs": {compareCount(elementCount, func(a, b float64) bool { return a >= b }), "of at least %s"},
	"unique":    {areUnique, "without repetitions"},
	"pattern":   {matchesPattern, "that matches %s"},
	"prefix":    {func(n *tree.Node, value string) bool { return strings.HasPrefix(n.Text, value) }, "that begins with %s"},
	"suffix":    {func(n *tree.Node, value string) bool { return strings.HasSuffix(n.Text, value) }, "that ends with %s"},
	"not_in":    {func(n *tree.Node, value string) bool { return n.Text != value }, "other than %s"},

	"well_known_regex": {isHeaderText, "that can be a header"},
}

// firstUnmet returns the first rule that a value violates. If there are several "in" rules, the value must meet one of
// them.
func firstUnmet(n *tree.Node, all []rule) (unmet rule, ok bool) {
	has := func(name, value string) bool { return slices.Contains(all, rule{name, value}) }
	if isEmpty(n) && has("ignore_empty", "true") {
		return rule{}, false
	}
	for _, r := range all {
		switch c := constraints[r.name]; {
		case r.name == "in":
			if !has("in", n.Text) {
				return r, true
			}
		case r.name == "well_known_regex" && has("strict", "false"):
			if strings.ContainsAny(n.Text, "\x00\r\n") {
				return r, true
			}
		case c.meets != nil && !c.meets(n, r.value):
			return r, true
		}
	}
	return rule{}, false
}

// describe describes the valid values of a field, including the rules that bound them.
func (f *field) describe(all []rule) string {
	one := f.noun().singular
	var texts []string
	for _, r := range all {
		switch r.name {
		case "in":
			if r.value != "" {
				texts = append(texts, r.value)
			}
		case "lt", "lte", "gt", "gte":
			if f.typeName == "Duration" {
				one = ""
			}
			one = r.describe(one)
		}
	}
	if texts != nil {
		return strings.Join(texts, " or ")
	}
	return strings.TrimSpace(one)
}

// describe describes the values that meet the rule.
func (r rule) describe(one string) string {
	want := constraints[r.name].want
	if strings.Contains(want, "%s") {
		want = fmt.Sprintf(want, r.value)
	}
	return one + " " + want
}

// allowsEmpty reports whether Envoy accepts a message without the field.
func (f *field) allowsEmpty() bool {
	var zero *tree.Node
	switch {
	case f.isList || f.isMap:
		zero = &tree.Node{Kind: tree.List}
	case f.isMessage(), len(f.typeName) > 0 && f.typeName[0] < 'a': // a message or wrapper
		for _, r := range f.rules {
			if r.name == "required" {
				return false
			}
		}
		return true
	case f.typeName == "string" || f.typeName == "bytes":
		zero = &tree.Node{Kind: tree.Text}
	default:
		zero = &tree.Node{Kind: tree.Number, Text: "0"}
	}
	_, unmet := firstUnmet(zero, f.rules)
	return !unmet
}

// compareAmount compares numbers, or durations in seconds.
func compareAmount(holds func(a, b float64) bool) func(n *tree.Node, value string) bool {
	return func(n *tree.Node, value string) bool { return holds(parseAmount(n.Text), parseAmount(value)) }
}

func parseAmount(text string) float64 {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds()
	}
	v, _ := strconv.ParseFloat(strings.TrimSuffix(text, "s"), 64) // longer than 292 years
	return v
}

// compareCount compares the result of count.
func compareCount(count func(n *tree.Node) int, holds func(a, b float64) bool) func(n *tree.Node, value string) bool {
	return func(n *tree.Node, value string) bool { return holds(float64(count(n)), parseAmount(value)) }
}

func runeCount(n *tree.Node) int    { return utf8.RuneCountInString(n.Text) }
func byteCount(n *tree.Node) int    { return len(n.Text) }
func elementCount(n *tree.Node) int { return len(n.Nodes) }

func areUnique(n *tree.Node, _ string) bool {
	seen := map[string]bool{}
	for i := range n.Nodes {
		if seen[n.Nodes[i].Text] {
			return false
		}
		seen[n.Nodes[i].Text] = true
	}
	return true
}

// patterns caches compiled regular expressions by their text.
var patterns = cache[*regexp.Regexp]{compute: regexp.MustCompile}

func matchesPattern(n *tree.Node, value string) bool { return patterns.get(value).MatchString(n.Text) }

// isHeaderText reports whether a text is a valid header name or value.
func isHeaderText(n *tree.Node, which string) bool {
	if which == "HTTP_HEADER_VALUE" {
		return !strings.ContainsFunc(n.Text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
	}
	return strings.Trim(strings.TrimPrefix(n.Text, ":"), "!#$%&'*+-.^_|~`0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
