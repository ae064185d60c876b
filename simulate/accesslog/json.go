package accesslog

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// jsonFormat reads lines with a JSON object each.
type jsonFormat struct {
	namedFields

	root node
	// embedded is the field that contains a line of another format, as collectors of container logs
	// write it, or nil.
	embedded *node
	// inner parses the embedded line.
	inner lineParser
}

// node is a key of an object.
type node struct {
	// name is the key after those of the surrounding objects, separated by dots.
	name     string
	children map[string]*node
	// slot is the value's slot, or -1.
	slot int
	// embedded marks the field with the embedded line, and wantedBelow an object with selected
	// fields.
	embedded, wantedBelow bool
}

// maxDepth limits the depth of fields.
const maxDepth = 8

func (*jsonFormat) info() formatInfo { return fieldFormatInfo("json", "JSON", maxLineBytes) }

func newJSONFormat(fields map[string]string, sample [][]byte) (lineParser, error) {
	f := &jsonFormat{namedFields: namedFields{renamed: fields}}
	var first error
	for _, line := range sample {
		if err := f.observeLine(line); err != nil && first == nil {
			first = fmt.Errorf("%w: %q", err, truncate(line))
		}
	}
	if len(f.observed) == 0 {
		return nil, fmt.Errorf("no line is a JSON object: %w", first)
	}
	f.detectEmbedded(sample)
	return f, f.checkRenamed()
}

// observeLine adds the fields of a line.
func (f *jsonFormat) observeLine(line []byte) error {
	s := jsonview.Scanner{Bytes: line, HexEscapes: true}
	err := f.observeObject(&s, &f.root, 1)
	if err == nil && s.Next() != 0 {
		return jsonview.ErrSyntax
	}
	return err
}

func (f *jsonFormat) observeObject(s *jsonview.Scanner, parent *node, depth int) error {
	return s.Object(func(key []byte) error {
		n := parent.children[string(key)]
		if n == nil {
			n = &node{name: string(key)}
			if parent != &f.root {
				n.name = parent.name + "." + n.name
			}
			if parent.children == nil {
				parent.children = map[string]*node{}
			}
			parent.children[string(key)] = n
		}
		f.observeName(n.name)
		from := s.Offset
		if s.Next() == '{' && depth < maxDepth {
			if f.objects == nil {
				f.objects = map[string]bool{}
			}
			f.objects[n.name] = true
			if err := f.observeObject(s, n, depth+1); err != nil {
				return err
			}
			s.Offset = from
		}
		value, _, err := s.Value(nil)
		f.observeValue(n.name, value)
		return err
	})
}

// embeddedNames are the fields in which docker, journald and collectors write lines of another
// format.
var embeddedNames = []string{"log", "message", "MESSAGE", "msg", "textPayload", "line"}

// detectEmbedded finds a field with lines of another format.
func (f *jsonFormat) detectEmbedded(sample [][]byte) {
	if f.logName(fieldStatus) != "" || f.logName(FieldMetadata) != "" || f.seen["descriptors"] > 0 {
		return
	}
	for _, name := range embeddedNames {
		if f.root.children[name] == nil {
			continue
		}
		var lines [][]byte
		for _, line := range sample {
			s := jsonview.Scanner{Bytes: line, HexEscapes: true}
			_ = s.Object(func(key []byte) error { // the fields before a syntax error count
				value, _, err := s.Value(nil)
				if text := bytes.TrimRight(value, "\r\n"); string(key) == name && len(text) > 0 {
					lines = append(lines, text)
				}
				return err
			})
		}
		if len(lines) == 0 {
			continue
		}
		if inner, err := recogniseLine(lines); err == nil && inner != nil && inner.logName(fieldTime) != "" {
			f.embedded, f.inner = f.root.children[name], inner
			return
		}
	}
}

func (f *jsonFormat) logName(name string) string {
	if f.inner != nil {
		if to := f.inner.logName(name); to != "" {
			return to
		}
	}
	return f.namedFields.logName(name)
}

func (f *jsonFormat) fields() []string {
	if f.inner == nil {
		return f.observed
	}
	return append(f.inner.fields(), f.observed...)
}

var errNotObject = errors.New("not a JSON object")

func (f *jsonFormat) bind(l *layout) error {
	f.root.assignSlots(f.slotsByName(l, f.inner))
	if f.inner == nil {
		return nil
	}
	f.embedded.embedded = true
	return f.inner.bind(l)
}

// assignSlots sets the slots of a node and of those below it. It reports whether any is selected.
func (n *node) assignSlots(slots map[string]int) bool {
	n.wantedBelow = false
	for _, below := range n.children {
		if below.assignSlots(slots) {
			n.wantedBelow = true
		}
	}
	slot, wanted := slots[n.name]
	if !wanted {
		slot = -1
	}
	n.slot = slot
	return wanted || n.wantedBelow
}

func (f *jsonFormat) read(line []byte, l *Line, request func(error) error) error {
	s := &jsonview.Scanner{Bytes: line, HexEscapes: true}
	if s.Next() != '{' {
		return &LineError{l.baseColumn + s.Offset, errNotObject}
	}
	l.embedded = nil
	err := l.readObject(s, &f.root)
	if err == nil && s.Next() != 0 {
		err = jsonview.ErrSyntax
	}
	if err != nil {
		return &LineError{l.baseColumn + s.Offset, err}
	}
	if f.inner != nil && l.embedded != nil {
		l.baseColumn = l.embeddedAt
		return f.inner.read(bytes.TrimRight(l.embedded, "\r\n"), l, request)
	}
	return request(nil)
}

// readObject reads an object. With [jsonview.Scanner.Object] a line would take 1/15 longer.
func (l *Line) readObject(s *jsonview.Scanner, parent *node) error {
	s.Offset++ // the brace
	if s.Next() == '}' {
		s.Offset++
		return nil
	}
	for {
		n, err := l.keys.readKey(s, parent)
		if err != nil {
			return err
		}
		if n == nil {
			err = s.Skip()
		} else {
			err = l.readMember(s, n)
		}
		if err != nil {
			return err
		}
		if s.Next() != ',' {
			return s.Consume('}')
		}
		s.Offset++
	}
}

func (l *Line) readMember(s *jsonview.Scanner, n *node) (err error) {
	first, column := s.Next(), s.Offset
	if n.slot < 0 && n.wantedBelow && first == '{' {
		return l.readObject(s, n)
	}
	var value []byte
	value, l.Scratch, err = s.Value(l.Scratch)
	if first == '[' {
		value, l.Scratch = singleText(value, l.Scratch)
	}
	if n.embedded && first == '"' {
		l.embedded, l.embeddedAt = value, column
	}
	if n.slot >= 0 && value != nil && (first != '"' || string(value) != "-") {
		l.set(n.slot, column, value)
	}
	if err == nil && n.wantedBelow && first == '{' {
		end := s.Offset
		s.Offset = column
		err = l.readObject(s, n)
		s.Offset = end
	}
	return err
}

// singleText returns the text of a list with one string, as headers are logged, and other lists
// unchanged.
func singleText(value, scratch []byte) (text, grown []byte) {
	s := jsonview.Scanner{Bytes: value, Offset: 1}
	if s.Next() != '"' {
		return value, scratch
	}
	text, grown, err := s.Value(scratch)
	if err != nil || s.Next() != ']' {
		return value, scratch
	}
	return text, grown
}
