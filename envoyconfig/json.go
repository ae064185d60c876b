package envoyconfig

import (
	"encoding/json"
	"errors"
	"strings"
)

// deepest is how far a tree may go down: far further than any configuration of Envoy, and
// not so far that the stack grows without bound.
const deepest = 500

// errNotJSON says that a text may be YAML, which says better what is wrong.
var errNotJSON = errors.New("not JSON")

// jsonReader reads JSON into nodes. A dump of a large mesh has many megabytes: its nodes are
// a fraction of what the YAML library makes of them, and their texts are views of the file.
type jsonReader struct {
	in   string
	file *file
	// at is the next byte, in the given line, which begins at start.
	at, start, line int
}

// parseJSON reads one value that is all of the text. It is stricter than YAML's flow style,
// and whatever it does not read is left to YAML.
func parseJSON(f *file, in string) (node, error) {
	r := jsonReader{in: in, file: f, line: 1}
	r.space()
	if c := r.peek(); c != '{' && c != '[' {
		return node{}, errNotJSON
	}
	var n node
	if err := r.value(&n, 0); err != nil {
		return node{}, err
	}
	if r.space(); r.at != len(in) {
		return node{}, errNotJSON
	}
	return n, nil
}

// peek returns the next byte, 0 at the end.
func (r *jsonReader) peek() byte {
	if r.at < len(r.in) {
		return r.in[r.at]
	}
	return 0
}

func (r *jsonReader) space() {
	for ; r.at < len(r.in); r.at++ {
		switch r.in[r.at] {
		case '\n':
			r.line++
			r.start = r.at + 1
		case ' ', '\t', '\r':
		default:
			return
		}
	}
}

func (r *jsonReader) value(n *node, depth int) error {
	if depth > deepest {
		return errNotJSON
	}
	n.file = r.file
	n.line, n.col = int32(r.line), int32(r.at-r.start+1) //nolint:gosec // files are smaller than 2 GiB
	var err error
	switch c := r.peek(); c {
	case '{':
		n.kind = object
		return r.nodes(n, '}', depth)
	case '[':
		n.kind = list
		return r.nodes(n, ']', depth)
	case '"':
		n.kind = text
		n.text, err = r.quoted()
		return err
	default:
		n.kind, n.text, err = r.word()
		return err
	}
}

// nodes reads what stands between braces or brackets.
func (r *jsonReader) nodes(n *node, end byte, depth int) error {
	r.at++
	if r.space(); r.peek() == end {
		r.at++
		return nil
	}
	for {
		var below node
		if r.space(); end == '}' {
			if r.peek() != '"' {
				return errNotJSON
			}
			var err error
			if below.name, err = r.quoted(); err != nil {
				return err
			}
			if r.space(); r.peek() != ':' {
				return errNotJSON
			}
			r.at++
			r.space()
		}
		if err := r.value(&below, depth+1); err != nil {
			return err
		}
		n.nodes = append(n.nodes, below)
		switch r.space(); r.peek() {
		case ',':
			r.at++
		case end:
			r.at++
			return nil
		default:
			return errNotJSON
		}
	}
}

// quoted reads text. Only one with escapes is copied.
func (r *jsonReader) quoted() (string, error) {
	from := r.at
	for i := from + 1; i < len(r.in); i++ {
		switch c := r.in[i]; {
		case c == '\\':
			i++
		case c < ' ':
			return "", errNotJSON
		case c == '"':
			r.at = i + 1
			raw := r.in[from:r.at]
			if strings.IndexByte(raw, '\\') < 0 {
				return raw[1 : len(raw)-1], nil
			}
			var s string
			if json.Unmarshal([]byte(raw), &s) != nil {
				return "", errNotJSON
			}
			return s, nil
		}
	}
	return "", errNotJSON
}

// word reads a number, true, false or null.
func (r *jsonReader) word() (kind, string, error) {
	from := r.at
	for r.at < len(r.in) && strings.IndexByte("+-.0123456789abcdefghijklmnopqrstuvwxyzE", r.in[r.at]) >= 0 {
		r.at++
	}
	switch s := r.in[from:r.at]; {
	case s == "true", s == "false":
		return boolean, s, nil
	case s == "null":
		return null, "", nil
	case json.Valid([]byte(s)): // a number: no other value is made of these letters
		return number, s, nil
	default:
		return 0, "", errNotJSON
	}
}
