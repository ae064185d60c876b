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
}

// node is a key of an object.
type node struct {
	// name is the key after those of the surrounding objects, separated by dots.
	name     string
	children map[string]*node
	// slot is the value's slot, or -1.
	slot int
	// wantedBelow marks an object with selected fields.
	wantedBelow bool
}

// maxDepth limits the depth of fields.
const maxDepth = 8

func (*jsonFormat) info() formatInfo {
	return formatInfo{"JSON", "--format 'json time=FIELD'"}
}

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

var errNotObject = errors.New("not a JSON object")

func (f *jsonFormat) bind(l *layout) error {
	f.root.assignSlots(f.slotsByName(l, nil))
	return nil
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

func (f *jsonFormat) read(line []byte, l *Line) error {
	s := &jsonview.Scanner{Bytes: line, HexEscapes: true}
	if s.Next() != '{' {
		return &LineError{l.baseColumn + s.Offset, errNotObject}
	}
	err := l.readObject(s, &f.root)
	if err == nil && s.Next() != 0 {
		err = jsonview.ErrSyntax
	}
	if err != nil {
		return &LineError{l.baseColumn + s.Offset, err}
	}
	return nil
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
	first := s.Next()
	column := s.Offset
	if n.slot < 0 && n.wantedBelow && first == '{' {
		return l.readObject(s, n)
	}
	var value []byte
	value, l.Scratch, err = s.Value(l.Scratch)
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

// keyCache remembers the keys of the last line, which usually occur in the same order in the next.
type keyCache struct {
	keys []cachedKey
	// next is the index of the next key of this line.
	next int
}

type cachedKey struct {
	// text is the encoded key with its quotes and the colon.
	text []byte
	// parent is the object that contains the key. child is the key's node, or nil if it is not
	// selected.
	parent, child *node
}

// readKey consumes a key of an object and the colon. It returns nil if the value is not selected.
func (o *keyCache) readKey(s *jsonview.Scanner, parent *node) (*node, error) {
	s.Next()
	i := o.next
	o.next++
	if i < len(o.keys) {
		if seen := &o.keys[i]; seen.parent == parent && bytes.HasPrefix(s.Bytes[s.Offset:], seen.text) {
			s.Offset += len(seen.text)
			return seen.child, nil
		}
	}
	from := s.Offset
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	child := parent.children[string(key)]
	if child != nil && child.slot < 0 && !child.wantedBelow {
		child = nil
	}
	if i < maxCachedKeys {
		for len(o.keys) <= i {
			o.keys = append(o.keys, cachedKey{})
		}
		o.keys[i] = cachedKey{bytes.Clone(s.Bytes[from:s.Offset]), parent, child}
	}
	return child, nil
}

// maxCachedKeys limits the remembered keys of a line.
const maxCachedKeys = 256
