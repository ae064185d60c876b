package tree

import (
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Kind is the kind of a [Node].
type Kind uint8

// The kinds of nodes.
const (
	Absent Kind = iota // the zero Node, a missing field
	Null
	Text
	Number
	Boolean
	Object
	List
)

// String describes the kind.
func (k Kind) String() string {
	return [...]string{"nothing", "null", "text", "a number", "true or false", "an object", "a list"}[k]
}

// Node is a value and its position. A missing field is a node whose fields are missing, too, so that paths can be
// walked without checking each step.
type Node struct {
	// Name is the name of the field, as written, if the node is in an object.
	Name string
	// Text is the text of a scalar, "" for other kinds.
	Text string
	// Nodes are the fields of an object or the elements of a list.
	Nodes []Node
	Kind  Kind

	file      *string // name of the file
	line, col int32
}

// Missing is the node of every missing field.
var Missing Node

// Field returns the field of an object by its protobuf name, such as rate_limits, even if it is written as
// rateLimits. If the object has the field several times, the last one wins.
func (n *Node) Field(name string) *Node {
	if n.Kind != Object {
		return &Missing
	}
	for i := len(n.Nodes) - 1; i >= 0; i-- {
		if child := &n.Nodes[i]; child.Kind != Null && child.HasName(name) {
			return child
		}
	}
	return &Missing
}

// At returns the field at a path.
func (n *Node) At(names ...string) *Node {
	for _, name := range names {
		n = n.Field(name)
	}
	return n
}

// HasName reports whether the node's name is the given name or its camelCase form.
func (n *Node) HasName(name string) bool {
	if n.Name == name {
		return true
	}
	i := strings.IndexByte(name, '_')
	return i > 0 && i < len(n.Name) && isUpper(rune(n.Name[i])) && SnakeCase(n.Name) == name
}

// SnakeCase returns the protobuf name of a field that may be in camelCase.
func SnakeCase(name string) string {
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

// Value returns the value of a map by its key.
func (n *Node) Value(key string) *Node {
	for child := range n.Fields() {
		if child.Name == key {
			return child
		}
	}
	return &Missing
}

var hashSeed = maphash.MakeSeed()

// Hash returns a number that is equal for equal trees, whatever their positions and the order of fields.
func (n *Node) Hash() uint64 {
	sum := maphash.Comparable(hashSeed, [2]string{SnakeCase(n.Name), n.Text})
	for i := range n.Nodes {
		one := n.Nodes[i].Hash()
		if n.Kind == List {
			one = maphash.Comparable(hashSeed, [2]uint64{uint64(i), one})
		}
		sum += one
	}
	return maphash.Comparable(hashSeed, [2]uint64{uint64(n.Kind), sum})
}

// Exists reports whether the node is not missing.
func (n *Node) Exists() bool { return n.Kind != Absent }

// Elements returns the elements of a list. Like Envoy, it accepts one value in place of a list.
func (n *Node) Elements() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		if n.Kind != List {
			if n.Exists() {
				yield(n)
			}
			return
		}
		for i := range n.Nodes {
			if !yield(&n.Nodes[i]) {
				return
			}
		}
	}
}

// flatten replaces the lists in a list by their elements, as Envoy does.
func (n *Node) flatten() {
	isList := func(e Node) bool { return e.Kind == List }
	if !slices.ContainsFunc(n.Nodes, isList) {
		return
	}
	var all []Node
	for _, e := range n.Nodes {
		if isList(e) {
			all = append(all, e.Nodes...)
		} else {
			all = append(all, e)
		}
	}
	n.Nodes = all
}

// Fields returns the fields of an object, and none for other kinds.
func (n *Node) Fields() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for i := range n.Nodes {
			if n.Kind != Object || !yield(&n.Nodes[i]) {
				return
			}
		}
	}
}

// Map returns the results of read for each element of a list.
func Map[T any](list *Node, read func(*Node) T) (all []T) {
	for n := range list.Elements() {
		all = append(all, read(n))
	}
	return all
}

// Texts returns the texts of a list's elements.
func Texts(list *Node) []string { return Map(list, func(n *Node) string { return n.Text }) }

// Bool returns a boolean, or the given default if the field is not set. The value may be in a message such as BoolValue.
func (n *Node) Bool(byDefault bool) bool {
	switch n.Kind {
	case Boolean, Text:
		return slices.Contains([]string{"true", "t", "yes", "y", "1", "on"}, strings.ToLower(n.Text))
	case Object:
		return n.Field("value").Bool(byDefault)
	default:
		return byDefault
	}
}

// Uint returns a number, or the given default if the field is not set or not a whole number. The value may be in a
// message such as UInt32Value.
func (n *Node) Uint(byDefault uint64) uint64 {
	if n.Kind == Object {
		return n.Field("value").Uint(byDefault)
	}
	if v, err := strconv.ParseUint(n.Text, 0, 64); err == nil {
		return v
	}
	// Protobuf's JSON accepts 1e3 and 10.0 as integers.
	if v, err := strconv.ParseFloat(n.Text, 64); err == nil && v >= 0 && v < 1<<63 && v == float64(uint64(v)) {
		return uint64(v)
	}
	return byDefault
}

// Duration returns a duration in one of the forms that Envoy or istiod accept; 0 for other values.
func (n *Node) Duration() time.Duration {
	if n.Kind == Object {
		return time.Duration(n.Field("seconds").Uint(0))*time.Second + time.Duration(n.Field("nanos").Uint(0)) //nolint:gosec // small numbers
	}
	d, _ := time.ParseDuration(n.Text) // 0 if there is none
	return d
}

// Enum returns the name of an enum's value, which may be written as a number. The first name is the default.
func (n *Node) Enum(names ...string) string {
	if n.Kind == Number {
		if i := n.Uint(0); i < uint64(len(names)) {
			return names[i]
		}
	}
	if n.Text == "" {
		return names[0]
	}
	for _, name := range names {
		if strings.EqualFold(name, n.Text) {
			return name
		}
	}
	return n.Text
}

// TypeName returns the message name in @type, without the URL prefix.
func (n *Node) TypeName() string { return afterSlash(n.Field("@type").Text) }

// Typed returns the message name of a typed_config and its fields. It unwraps TypedStruct.
func (n *Node) Typed() (typeName string, config *Node) {
	switch name := n.TypeName(); name {
	case "xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct":
		return afterSlash(n.Field("type_url").Text), n.Field("value")
	default:
		return name, n
	}
}

func afterSlash(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

// Pos returns the position of the node; unknown for a missing one.
func (n *Node) Pos() rules.Pos {
	if n.file == nil {
		return rules.Pos{}
	}
	return rules.Pos{File: *n.file, Line: int(n.line), Col: int(n.col)}
}

// Describe describes the node in a message.
func (n *Node) Describe() string {
	switch n.Kind {
	case Text:
		return strconv.Quote(rules.Shorten(n.Text))
	case Number, Boolean:
		return rules.Shorten(n.Text)
	case Object, List:
		return fmt.Sprintf("%v of %d", n.Kind, len(n.Nodes))
	default:
		return n.Kind.String()
	}
}
