package envoyconfig

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// verdict is the result of a match. unknown is the reason if the result cannot be determined.
type verdict struct {
	yes     bool
	unknown string
}

// allMatch reports whether all elements match. The result is unknown if it is unknown for an element and no other
// element fails to match.
func allMatch[T any](list []T, match func(T) verdict) verdict {
	unknown := ""
	for _, one := range list {
		switch v := match(one); {
		case v.unknown != "":
			unknown = v.unknown
		case !v.yes:
			return verdict{}
		}
	}
	return verdict{yes: unknown == "", unknown: unknown}
}

// equals reports whether the result is want.
func (v verdict) equals(want bool) verdict {
	v.yes = v.yes == want
	return v
}

// stringMatcher reports whether a text matches.
type stringMatcher func(s string) verdict

// newStringMatcher reads a StringMatcher.
func newStringMatcher(n *tree.Node) stringMatcher {
	if match := newComparer(n, textComparisons, n.Field("ignore_case").Bool(false)); match != nil {
		return match
	}
	if regex := n.Field("safe_regex"); regex.Exists() {
		return newRegex(regex)
	}
	return func(string) verdict { return verdict{unknown: "a matcher that sluice does not support"} }
}

// comparison compares a text with the pattern in the field of the given name.
type comparison struct {
	name  string
	match func(s, pattern string) bool
}

// newComparer returns a matcher for the first comparison that n has; nil if it has none. If fold is
// true, the matcher ignores case.
func newComparer(n *tree.Node, comparisons []comparison, fold bool) stringMatcher {
	for _, w := range comparisons {
		want := n.Field(w.name)
		match := w.match
		switch pattern := lowerASCII(want.Text); {
		case !want.Exists():
		case fold:
			return func(s string) verdict { return verdict{yes: match(lowerASCII(s), pattern)} }
		default:
			return func(s string) verdict { return verdict{yes: match(s, want.Text)} }
		}
	}
	return nil
}

// textComparisons are the comparisons of a StringMatcher.
var textComparisons = []comparison{
	{"exact", isEqual}, {"prefix", strings.HasPrefix}, {"suffix", strings.HasSuffix}, {"contains", strings.Contains},
}

func isEqual(s, pattern string) bool { return s == pattern }

// lowerASCII lowers ASCII letters only, as Envoy does to ignore case.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// newRegex reads a RegexMatcher, which must match the complete text. Envoy treats each byte as a character: "." does
// not match ü in UTF-8, but ".." does.
func newRegex(n *tree.Node) stringMatcher {
	pattern := n.Field("regex")
	re, err := regexp.Compile(`\A(?:` + latin1(pattern.Text) + `)\z`)
	if err != nil {
		return func(string) verdict { return verdict{unknown: "the regular expression " + pattern.Describe()} }
	}
	return func(s string) verdict { return verdict{yes: re.MatchString(latin1(s))} }
}

// latin1 converts each byte to a character.
func latin1(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0 {
		return s
	}
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// headerMatchers is a list of matchers that must all match.
type headerMatchers []headerMatcher

type headerMatcher struct {
	name string
	// wantPresent is true if the header must be present, for matchers without a value.
	wantPresent    bool
	presentOnly    bool
	text           stringMatcher
	invert         bool
	missingIsEmpty bool
}

func newHeaderMatchers(list *tree.Node) headerMatchers { return tree.Map(list, newHeaderMatcher) }

func newHeaderMatcher(n *tree.Node) headerMatcher {
	m := headerMatcher{
		name: strings.ToLower(n.Field("name").Text), wantPresent: true,
		invert:         n.Field("invert_match").Bool(false),
		missingIsEmpty: n.Field("treat_missing_header_as_empty").Bool(false),
	}
	for _, w := range textComparisons {
		if want := n.Field(w.name + "_match"); want.Exists() {
			m.text = func(s string) verdict {
				return verdict{yes: w.match(s, want.Text) || w.name == "exact" && want.Text == ""}
			}
		}
	}
	if regex := n.Field("safe_regex_match"); regex.Exists() {
		m.text = newRegex(regex)
	}
	if s := n.Field("string_match"); s.Exists() {
		m.text = newStringMatcher(s)
	}
	if r := n.Field("range_match"); r.Exists() {
		m.text = newRange(r)
	}
	if m.text == nil {
		m.presentOnly = true
		m.wantPresent = n.Field("present_match").Bool(true)
	}
	return m
}

// newRange reads an Int64Range, which includes start and excludes end.
func newRange(n *tree.Node) stringMatcher {
	bound := func(name string) int64 {
		v, err := strconv.ParseInt(n.Field(name).Text, 10, 64)
		if err != nil {
			return 0
		}
		return v
	}
	start := bound("start")
	end := bound("end")
	return func(s string) verdict {
		v, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		return verdict{yes: err == nil && start <= v && v < end}
	}
}

func (all headerMatchers) match(x *exchange) verdict {
	return allMatch(all, func(m headerMatcher) verdict { return m.match(x) })
}

func (m headerMatcher) match(x *exchange) verdict {
	values, unknown := x.header(m.name)
	if unknown != "" {
		return verdict{unknown: "header " + m.name + ": " + unknown}
	}
	if len(values) == 0 && m.missingIsEmpty {
		values = []string{""}
	}
	if m.presentOnly {
		return verdict{yes: (len(values) > 0) == m.wantPresent}.equals(!m.invert)
	}
	if len(values) == 0 {
		return verdict{} // inverted or not
	}
	v := m.text(strings.Join(values, ","))
	for _, value := range values {
		// Whether Envoy joins the values of a header depends on its version and on the header.
		if one := m.text(value); one.yes != v.yes {
			return verdict{unknown: "header " + m.name + ": the request has it more than once"}
		}
	}
	return v.equals(!m.invert)
}

// queryMatchers is a list of matchers that must all match.
type queryMatchers []queryMatcher

type queryMatcher struct {
	name    string
	present bool
	text    stringMatcher // nil to match the presence only
}

func newQueryMatchers(list *tree.Node) queryMatchers {
	return tree.Map(list, func(n *tree.Node) queryMatcher {
		m := queryMatcher{name: n.Field("name").Text, present: n.Field("present_match").Bool(true)}
		if s := n.Field("string_match"); s.Exists() {
			m.text = newStringMatcher(s)
		}
		return m
	})
}

func (all queryMatchers) match(q query) verdict {
	if len(all) > 0 && q.unknown != "" {
		return verdict{unknown: q.unknown}
	}
	return allMatch(all, func(m queryMatcher) verdict {
		switch value, ok := q.first(m.name); {
		case m.text == nil:
			return verdict{yes: ok == m.present}
		case ok:
			return m.text(value)
		default:
			return verdict{}
		}
	})
}
