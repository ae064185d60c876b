package envoyconfig

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// kind is what a node is.
type kind uint8

const (
	absent kind = iota // the zero node, which stands for a field that is not there
	null
	text
	number
	boolean
	object
	list
)

func (k kind) String() string {
	return [...]string{"nothing", "null", "text", "a number", "true or false", "an object", "a list"}[k]
}

// node is a value of a configuration and where it stands. A missing field is a node too,
// whose fields are missing in turn, so that paths can be walked without looking at each
// step.
type node struct {
	// name is the field's, as written, in an object.
	name string
	// text is a scalar's.
	text string
	// nodes are the fields of an object or the elements of a list.
	nodes     []node
	file      *file
	line, col int32
	kind      kind
}

// missing is every field that is not there.
var missing node

// field returns the field of an object by its name in Envoy's API, such as rate_limits. It
// finds rateLimits too. Of several the last counts.
func (n *node) field(name string) *node {
	if n.kind != object {
		return &missing
	}
	for i := len(n.nodes) - 1; i >= 0; i-- {
		if sameField(n.nodes[i].name, name) && n.nodes[i].kind != null {
			return &n.nodes[i]
		}
	}
	return &missing
}

// at walks down fields.
func (n *node) at(names ...string) *node {
	for _, name := range names {
		n = n.field(name)
	}
	return n
}

// sameField reports whether written is the field's name, or that in camelCase.
func sameField(written, name string) bool {
	if written == name {
		return true
	}
	i := 0
	for j := 0; j < len(name); j++ {
		c := name[j]
		if c == '_' && j+1 < len(name) {
			j++
			if c = name[j]; 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
		}
		if i == len(written) || written[i] != c {
			return false
		}
		i++
	}
	return i == len(written)
}

// there reports whether the field is there.
func (n *node) there() bool { return n.kind != absent }

// elements returns the elements of a list, none of anything else.
func (n *node) elements() []node {
	if n.kind != list {
		return nil
	}
	return n.nodes
}

// fields returns the fields of an object, none of anything else.
func (n *node) fields() []node {
	if n.kind != object {
		return nil
	}
	return n.nodes
}

// str returns a scalar's text, "" of anything else.
func (n *node) str() string { return n.text }

// yes reports whether the field is true; otherwise is what it is if it is not there.
func (n *node) yes(otherwise bool) bool {
	switch n.kind {
	case boolean, text:
		return n.text == "true"
	default:
		return otherwise
	}
}

// uint returns a number, or otherwise if there is none.
func (n *node) uint(otherwise uint64) uint64 {
	if v, err := strconv.ParseUint(n.text, 10, 64); err == nil {
		return v
	}
	// Protobuf's JSON takes 1e3 and 10.0 for whole numbers too.
	if v, err := strconv.ParseFloat(n.text, 64); err == nil && v >= 0 && v < 1<<63 && v == float64(uint64(v)) {
		return uint64(v)
	}
	return otherwise
}

// typeName returns the message of a typed_config: what follows the last slash of @type.
func (n *node) typeName() string {
	url := n.field("@type").str()
	return url[strings.LastIndexByte(url, '/')+1:]
}

// pos returns where the node stands; unknown for a missing one.
func (n *node) pos() rules.Pos {
	if n.file == nil {
		return rules.Pos{}
	}
	return rules.Pos{File: n.file.name, Line: int(n.line), Col: int(n.col)}
}

// shown is a node for people, in an error.
func (n *node) shown() string {
	switch n.kind {
	case text:
		return strconv.Quote(rules.Shorten(n.text))
	case number, boolean:
		return rules.Shorten(n.text)
	case object, list:
		return fmt.Sprintf("%v of %d", n.kind, len(n.nodes))
	default:
		return n.kind.String()
	}
}
