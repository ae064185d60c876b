package tree

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// maxDepth is the maximum depth of a tree. It is far more than any configuration needs and bounds the stack.
const maxDepth = 500

// errNotJSON is returned for a text that may be YAML, whose parser gives better errors.
var errNotJSON = errors.New("not JSON")

// jsonReader reads JSON into nodes. It uses much less memory than the YAML library, which matters for the dumps of large
// meshes.
type jsonReader struct {
	jsonview.Scanner

	file *string
	// names interns field names, since a large file repeats few of them.
	names map[string]string
	// line is the line of offset counted, and lineStart the offset of its first byte.
	counted, lineStart, line int
}

// parseJSON reads a text that is one JSON object or list. Everything else is left to the YAML parser.
func parseJSON(file string, in []byte) (n Node, err error) {
	r := jsonReader{
		Scanner: jsonview.Scanner{Bytes: in, MaxDepth: maxDepth}, file: &file, names: map[string]string{}, line: 1,
	}
	if c := r.Next(); c != '{' && c != '[' || !json.Valid(in) { // the scanner does not validate literals
		return n, errNotJSON
	}
	return n, r.readValue(&n)
}

// readValue reads a value into n.
func (r *jsonReader) readValue(n *Node) error {
	c := r.Next()
	if lines := r.Bytes[r.counted:r.Offset]; bytes.IndexByte(lines, '\n') >= 0 {
		r.line += bytes.Count(lines, []byte{'\n'})
		r.lineStart = r.counted + bytes.LastIndexByte(lines, '\n') + 1
	}
	r.counted = r.Offset
	n.file, n.line, n.col = r.file, int32(r.line), int32(r.Offset-r.lineStart+1) //nolint:gosec // files are smaller than 2 GiB
	switch c {
	case '{':
		n.Kind = Object
		return r.Object(func(key []byte) error { return r.readChild(n, r.intern(key)) })
	case '[':
		n.Kind = List
		defer n.flatten()
		return r.List(func() error { return r.readChild(n, "") })
	}
	value, _, err := r.Value(nil)
	n.Text = string(value)
	switch {
	case c == '"':
		n.Kind = Text
	case value == nil:
		n.Kind = Null
	case c == 't', c == 'f':
		n.Kind = Boolean
	default:
		n.Kind = Number
	}
	return err
}

// readChild reads a value into a new child of n.
func (r *jsonReader) readChild(n *Node, name string) error {
	n.Nodes = append(n.Nodes, Node{Name: name})
	return r.readValue(&n.Nodes[len(n.Nodes)-1])
}

// intern returns a key as a string, sharing equal ones.
func (r *jsonReader) intern(key []byte) string {
	name, known := r.names[string(key)]
	if !known {
		name = string(key)
		r.names[name] = name
	}
	return name
}
