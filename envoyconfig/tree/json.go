package tree

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// maxDepth is how far a tree may go down: far further than any configuration of Envoy, and
// not so far that the stack grows without bound.
const maxDepth = 500

// errNotJSON says that a text may be YAML, which says better what is wrong.
var errNotJSON = errors.New("not JSON")

// jsonReader reads JSON into nodes. A dump of a large mesh has many megabytes: its nodes are
// a fraction of what the YAML library makes of them.
type jsonReader struct {
	jsonview.Scanner

	file *string
	// names are those of fields, of which a large file repeats few.
	names map[string]string
	// line is the one, which begins at start, of the byte counted.
	counted, lineStart, line int
}

// parseJSON reads one value that is all of the text. It is stricter than YAML's flow style,
// and whatever it does not read is left to YAML.
func parseJSON(file string, in []byte) (n Node, err error) {
	r := jsonReader{Scanner: jsonview.Scanner{Bytes: in, MaxDepth: maxDepth}, file: &file, names: map[string]string{}, line: 1}
	if c := r.Next(); c != '{' && c != '[' || !json.Valid(in) { // the scanner skips what is misspelt
		return n, errNotJSON
	}
	return n, r.readValue(&n)
}

// readValue takes the value of n.
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

// readChild takes a value below n.
func (r *jsonReader) readChild(n *Node, name string) error {
	n.Nodes = append(n.Nodes, Node{Name: name})
	return r.readValue(&n.Nodes[len(n.Nodes)-1])
}

// intern returns a key as a string, the same one each time.
func (r *jsonReader) intern(key []byte) string {
	name, known := r.names[string(key)]
	if !known {
		name = string(key)
		r.names[name] = name
	}
	return name
}
