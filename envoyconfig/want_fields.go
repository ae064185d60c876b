package envoyconfig

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// newest is the release whose fields the messages have.
const newest release = 40

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

// upTo is a whole number that is no larger.
func upTo(most uint64) want {
	w := aNumber
	w.one = fmt.Sprintf("a whole number up to %d", most)
	w.tidy = func(n *node) bool { return n.tidyNumber() && n.uint(0) <= most }
	return w
}

// oneOfNames is an enum of few names, which Envoy takes in any case of letters, or any number.
func oneOfNames(names ...string) want {
	return want{one: strings.Join(names, " or "), many: "names", names: names, tidy: func(n *node) bool {
		return n.kind == number || n.kind == text && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, n.text) })
	}}
}

// oneOfTexts is text out of a few.
func oneOfTexts(texts ...string) want {
	return want{one: strings.Join(texts, " or "), many: "texts", tidy: func(n *node) bool {
		return n.kind == text && (n.text == "" || slices.Contains(texts, n.text))
	}}
}

var (
	// aFormat is a format string, of one command.
	aFormat = want{one: "a command, such as %BYTES_RECEIVED%", many: "commands", tidy: func(n *node) bool {
		return n.isText() && (n.text == "" || len(n.text) > 1 && n.text[0] == '%' && strings.HasSuffix(n.text, "%"))
	}}
	anAddress = want{one: "an IP address", many: "IP addresses", tidy: func(n *node) bool {
		_, err := netip.ParseAddr(n.text)
		return n.kind == text && err == nil
	}}
)

// set reports whether a message has the fields that Envoy needs there, and none of two that exclude
// each other.
func (j *judge) set(n *node, w want, name string) bool {
	good := true
	for _, field := range w.needed {
		if at := n.field(field); !j.part && (at.kind == absent || at.kind == text && at.text == "" || at.kind == list && len(at.nodes) == 0) {
			j.wrong(n, name, "Envoy rejects it without %s: add it", field)
			good = false
		}
	}
	for _, group := range [][]string{w.oneOf, w.mostOne} {
		var there []string
		for _, field := range group {
			if n.field(field).there() {
				there = append(there, field)
			}
		}
		if len(there) > 1 {
			j.wrong(n, name, "Envoy takes %s alone: leave out all but one", strings.Join(there, " or "))
			good = false
		}
	}
	known := slices.ContainsFunc(w.oneOf, func(field string) bool { return n.field(field).there() })
	if len(w.oneOf) > 0 && !known && !j.part && !w.strangers(n) {
		j.wrong(n, name, "Envoy needs one of %s", strings.Join(w.oneOf, ", "))
		good = false
	}
	return good
}

// strangers reports whether a message has fields that are not known here.
func (w want) strangers(n *node) bool {
	return w.closed && slices.ContainsFunc(n.fields(), func(below node) bool {
		_, ok := w.fields[snakeCase(below.name)]
		return !ok
	})
}

// strange notes a field that Envoy does not have.
func (j *judge) strange(n *node, fields message) {
	near := ""
	if snakeCase(n.name) == "unit_multiplier" {
		near = ", or write the limit into the rules, which have it"
	}
	near += rules.DidYouMean(rules.Nearest(snakeCase(n.name), slices.Sorted(maps.Keys(fields))))
	j.config.strange = append(j.config.strange, fmt.Errorf("%v: Envoy %v has no field %s here, and rejects it: leave it out%s", n.pos(), newest, rules.Shorten(n.name), near))
}

// deprecated notes a field that Envoy rejects as deprecated.
func (j *judge) deprecated(n *node, instead string) {
	if instead != "" {
		j.config.deprecated = append(j.config.deprecated, fmt.Errorf("%v: Envoy %v rejects %s, which is deprecated: write %s", n.pos(), newest, n.name, instead))
	}
}

// concludeFields adds to what is wrong the fields that Envoy rejects: strange ones, unless a later one
// wrote the dump, and deprecated ones, unless a running one wrote it or the runtime allows them.
func (c *Config) concludeFields() {
	if c.release <= newest {
		c.wrong = append(c.wrong, c.strange...)
	}
	if c.release == 0 && !c.allowsDeprecated {
		c.wrong = append(c.wrong, c.deprecated...)
	}
}
