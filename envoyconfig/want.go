package envoyconfig

import (
	"fmt"
	"strconv"
	"strings"
	"time"
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
	tidy func(n *node) bool
	// list says that a list of such values is wanted.
	list bool
	// fields are those of an object, values what stands in a map. The @type of a message that
	// is any one says which it is.
	fields message
	values *want
	any    bool
	// closed says that Envoy knows no other fields. It needs those in needed, and of those in
	// oneOf one and no second; of those in mostOne there may be none.
	closed                 bool
	needed, oneOf, mostOne []string
	// names are those of an enum, if it takes no others.
	names []string
	// instead is the field to write in place of a deprecated one.
	instead string
}

// The values of protobuf's JSON.
var (
	anObject  = want{one: "an object", many: "objects", tidy: func(n *node) bool { return n.kind == object }}
	aText     = want{one: "text", many: "texts", tidy: (*node).isText}
	aBoolean  = want{one: "true or false", many: "true or false", tidy: (*node).tidyBoolean}
	aNumber   = want{one: "a whole number", many: "whole numbers", tidy: (*node).tidyNumber}
	anInteger = want{one: "a whole number", many: "whole numbers", tidy: (*node).isInteger}
	aDuration = want{one: "seconds, such as 0.25s", many: "durations", tidy: (*node).tidyDuration}
	anEnum    = want{one: "a name", many: "names", tidy: func(n *node) bool { return n.kind == text || n.kind == number }}
	anyOne    = want{one: "an object with @type", many: "objects with @type", tidy: anObject.tidy, any: true}
)

func having(m message) want {
	w := anObject
	w.fields = m
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
func (n *node) isText() bool {
	_, err := strconv.ParseInt(n.text, 10, 64)
	return n.kind == text || n.kind == number && err != nil
}

func (n *node) tidyBoolean() bool {
	n.unwrapValue()
	if n.kind != boolean && n.kind != text {
		return false
	}
	switch strings.ToLower(n.text) {
	case "true", "t", "yes", "y", "on", "1":
		n.text = "true"
	case "false", "f", "no", "n", "off", "0":
		n.text = "false"
	default:
		return false
	}
	n.kind = boolean
	return true
}

func (n *node) tidyNumber() bool {
	n.unwrapValue()
	const none = 1<<64 - 1
	return (n.kind == number || n.kind == text) && n.uint(none) != none
}

func (n *node) isInteger() bool {
	_, err := strconv.ParseInt(n.text, 10, 64)
	return err == nil && (n.kind == number || n.kind == text)
}

// tidyDuration makes 5.25s of seconds: 5, nanos: 250000000.
func (n *node) tidyDuration() bool {
	if n.kind == object {
		of := time.Duration(0)
		for name, unit := range map[string]time.Duration{"seconds": time.Second, "nanos": 1} {
			if part := n.field(name); part.there() && !part.tidyNumber() {
				return false
			}
			of += time.Duration(min(n.field(name).uint(0), mostSeconds)) * unit
		}
		n.kind, n.text, n.nodes = text, strconv.FormatFloat(of.Seconds(), 'f', -1, 64)+"s", nil
	}
	number, ok := strings.CutSuffix(n.text, "s")
	_, err := strconv.ParseFloat(number, 64)
	return n.kind == text && ok && err == nil && strings.Trim(number, "0123456789.") == ""
}

// mostSeconds is more than anybody waits.
const mostSeconds = 1 << 32

// unwrapValue replaces a message such as BoolValue by its value.
func (n *node) unwrapValue() {
	if value := n.field("value"); n.kind == object && value.there() {
		name := n.name
		*n = *value
		n.name = name
	}
}

// expect judges a message before it is read: what is no such message is an error.
func (c *Config) expect(n *node, m message) {
	(&judge{config: c}).value(n, having(m), "")
}

// expectPart judges a part of a message, which may lack what Envoy needs.
func (c *Config) expectPart(n *node, m message) {
	(&judge{config: c, part: true}).value(n, having(m), "")
}

// judge adds what is not as it has to be to what is wrong with a configuration.
type judge struct {
	config *Config
	// part says that what it looks at is a part of a message.
	part bool
}

func (j *judge) wrong(n *node, name, format string, args ...any) {
	j.config.wrong = append(j.config.wrong, fmt.Errorf("%v: %s%s", n.pos(), name, fmt.Sprintf(format, args...)))
}

// value reports whether a value and all below is what is wanted, and calls the value by a name.
func (j *judge) value(n *node, w want, name string) bool {
	if n.kind == absent || n.kind == null {
		return true
	}
	if w.list {
		return j.list(n, w, name)
	}
	if !w.tidy(n) {
		hint := ""
		if n.kind == boolean && saysYesOrNo(n.text) {
			hint = ": put it in quotes, without which it is true or false"
		}
		j.wrong(n, name, "found %s, want %s%s", n.shown(), w.one, hint)
		return false
	}
	fields := w.fields
	if w.any {
		typeName, inner := unwrap(n)
		if inner != n && !j.value(inner, anObject, "value: ") {
			return false
		}
		n, w = inner, known[typeName]
		fields = w.fields
	}
	good := true
	for i := range n.fields() {
		below := &n.nodes[i]
		of, ok := fields[snakeCase(below.name)]
		if w.values != nil {
			of, ok = *w.values, true
		}
		switch {
		case ok:
			good = j.value(below, of, below.name+": ") && good
			j.deprecated(below, of.instead)
		case w.closed && below.name != "@type":
			j.strange(below, fields)
		}
	}
	return j.set(n, w, name) && good
}

// list is value for a list.
func (j *judge) list(n *node, w want, name string) bool {
	w.list = false
	if n.kind != list {
		// Envoy takes a single value for a list of it.
		if !w.tidy(n) {
			w.one = "a list of " + w.many
			return j.value(n, w, name)
		}
		*n = node{name: n.name, nodes: []node{*n}, file: n.file, line: n.line, col: n.col, kind: list}
	}
	good := true
	for i := range n.nodes {
		good = j.value(&n.nodes[i], w, name) && good
	}
	return good
}

// snakeCase returns the name in Envoy's API of a field that may be in camelCase.
func snakeCase(name string) string {
	if strings.IndexFunc(name, isUpper) < 0 {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		if isUpper(r) {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isUpper(r rune) bool { return 'A' <= r && r <= 'Z' }
