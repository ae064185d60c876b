package api

import (
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// message is what the fields of a message of Envoy's API have to be, as far as they are read
// here. Others may be anything.
type message map[string]want

// want is what a value has to be.
type want struct {
	// one and many are the value, and several, for people.
	one, many string
	// tidy reports whether the value is what is wanted, and writes it in the one way that is
	// read here, if Envoy takes several.
	tidy func(n *tree.Node) bool
	// list says that a list of such values is wanted.
	list bool
	// fields are those of an object, values what stands in a map. The @type of a message that
	// is any one says which it is.
	fields message
	values *want
	any    bool
	// named is a message of [messages], which may have others of its kind below it.
	named string
	// closed says that Envoy knows no other fields. It needs those in needed, and of those in
	// oneOf one and no second; of those in mostOne there may be none.
	closed                 bool
	needed, oneOf, mostOne []string
	// names are those of an enum, if it takes no others.
	names []string
	// instead is the field to write in place of a deprecated one, and elsewhere where to put one that Envoy does
	// not know there.
	instead, elsewhere string
}

// The values of protobuf's JSON.
var (
	anObject  = want{one: "an object", many: "objects", tidy: func(n *tree.Node) bool { return n.Kind == tree.Object }}
	aText     = want{one: "text", many: "texts", tidy: isText}
	aBoolean  = want{one: "true or false", many: "true or false", tidy: tidyBoolean}
	aNumber   = want{one: "a whole number", many: "whole numbers", tidy: tidyNumber}
	anInteger = want{one: "a whole number", many: "whole numbers", tidy: isInteger}
	aDuration = want{one: "seconds, such as 0.25s", many: "durations", tidy: tidyDuration}
	anEnum    = want{one: "a name", many: "names", tidy: func(n *tree.Node) bool { return n.Kind == tree.Text || n.Kind == tree.Number }}
	anyOne    = want{one: "an object with @type", many: "objects with @type", tidy: anObject.tidy, any: true}
)

func having(m message) want {
	w := anObject
	w.fields = m
	return w
}

// named is a message by its name.
func named(message string) want {
	w := anObject
	w.named = message
	return w
}

func listOf(w want) want {
	w.list = true
	return w
}

func mapOf(w want) want {
	of := anObject
	of.values = &w
	return of
}

// isText has fractions for text, as they are in YAML for Envoy.
func isText(n *tree.Node) bool {
	_, err := strconv.ParseInt(n.Text, 10, 64)
	return n.Kind == tree.Text || n.Kind == tree.Number && err != nil
}

func tidyBoolean(n *tree.Node) bool {
	unwrapValue(n)
	if n.Kind != tree.Boolean && n.Kind != tree.Text {
		return false
	}
	switch strings.ToLower(n.Text) {
	case "true", "t", "yes", "y", "on", "1":
		n.Text = "true"
	case "false", "f", "no", "n", "off", "0":
		n.Text = "false"
	default:
		return false
	}
	n.Kind = tree.Boolean
	return true
}

func tidyNumber(n *tree.Node) bool {
	unwrapValue(n)
	const none = 1<<64 - 1
	return (n.Kind == tree.Number || n.Kind == tree.Text) && n.Uint(none) != none
}

func isInteger(n *tree.Node) bool {
	_, err := strconv.ParseInt(n.Text, 10, 64)
	return err == nil && (n.Kind == tree.Number || n.Kind == tree.Text)
}

// tidyDuration makes 5.25s of seconds: 5, nanos: 250000000.
func tidyDuration(n *tree.Node) bool {
	if n.Kind == tree.Object {
		of := time.Duration(0)
		for name, unit := range map[string]time.Duration{"seconds": time.Second, "nanos": 1} {
			if part := n.Field(name); part.There() && !tidyNumber(part) {
				return false
			}
			of += time.Duration(min(n.Field(name).Uint(0), mostSeconds)) * unit
		}
		n.Kind, n.Text, n.Nodes = tree.Text, strconv.FormatFloat(of.Seconds(), 'f', -1, 64)+"s", nil
	}
	number, ok := strings.CutSuffix(n.Text, "s")
	_, err := strconv.ParseFloat(number, 64)
	return n.Kind == tree.Text && ok && err == nil && strings.Trim(number, "0123456789.") == ""
}

// reportingWant is an interval of reports: Envoy takes no shorter one.
var reportingWant = want{one: "more than 0.1s", many: "durations", tidy: func(n *tree.Node) bool {
	if !tidyDuration(n) {
		return false
	}
	d, err := time.ParseDuration(n.Text)
	return err != nil || d > 100*time.Millisecond
}}

// mostSeconds is more than anybody waits.
const mostSeconds = 1 << 32

// unwrapValue replaces a message such as BoolValue by its value.
func unwrapValue(n *tree.Node) {
	if value := n.Field("value"); n.Kind == tree.Object && value.There() {
		name := n.Name
		*n = *value
		n.Name = name
	}
}

// all is an object that has no other fields than these.
func all(m message) want {
	w := having(m)
	w.closed = true
	return w
}

// needing is an object that Envoy rejects without each of fields, and with an empty one.
func (w want) needing(fields ...string) want {
	w.needed = fields
	return w
}

// withOne is an object of whose fields there must be one, and no second.
func (w want) withOne(fields ...string) want {
	w.oneOf = fields
	return w
}

// withMostOne is an object of whose fields there may be one, and no second.
func (w want) withMostOne(fields ...string) want {
	w.mostOne = fields
	return w
}

// insteadOf is a field that Envoy rejects as deprecated, and the one to write.
func (w want) insteadOf(field string) want {
	w.instead = field
	return w
}

// misplaced is a field that Envoy does not know there, and where it does.
func misplaced(elsewhere string) want { return want{elsewhere: elsewhere} }

// upTo is a whole number that is no larger.
func upTo(most uint64) want {
	w := aNumber
	w.one = fmt.Sprintf("a whole number up to %d", most)
	w.tidy = func(n *tree.Node) bool { return tidyNumber(n) && n.Uint(0) <= most }
	return w
}

// oneOfNames is an enum of few names, which Envoy takes in any case of letters, or any number.
func oneOfNames(names ...string) want {
	return want{one: strings.Join(names, " or "), many: "names", names: names, tidy: func(n *tree.Node) bool {
		return n.Kind == tree.Number || n.Kind == tree.Text && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, n.Text) })
	}}
}

// but is an enum without a name that Envoy no longer takes.
func (w want) but(name string) want {
	names := w.names
	number := strconv.Itoa(slices.Index(names, name))
	takes := w.tidy
	w.one = strings.Join(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name }), " or ")
	w.tidy = func(n *tree.Node) bool {
		return takes(n) && !strings.EqualFold(n.Text, name) && n.Text != number
	}
	return w
}

// oneOfTexts is text out of a few.
func oneOfTexts(texts ...string) want {
	return want{one: strings.Join(texts, " or "), many: "texts", tidy: func(n *tree.Node) bool {
		return n.Kind == tree.Text && (n.Text == "" || slices.Contains(texts, n.Text))
	}}
}

var (
	// aFormat is a format string, of one command.
	aFormat = want{one: "one command, such as %BYTES_RECEIVED%", many: "commands", tidy: func(n *tree.Node) bool {
		return isText(n) && (n.Text == "" || len(aCommand.FindString(n.Text)) == len(n.Text))
	}}
	aCommand = regexp.MustCompile(`(?s)^%[A-Z0-9_]+(\(.*?\))?(:[0-9]+)?%`)
	// aPattern is one of RE2, which has \C beside what Go has.
	aPattern = want{one: "a regular expression", many: "regular expressions", tidy: func(n *tree.Node) bool {
		_, err := syntax.Parse(n.Text, syntax.Perl)
		return isText(n) && (err == nil || strings.Contains(n.Text, `\C`))
	}}
	anAddress = want{one: "an IP address", many: "IP addresses", tidy: func(n *tree.Node) bool {
		_, err := netip.ParseAddr(n.Text)
		return n.Kind == tree.Text && err == nil
	}}
)
