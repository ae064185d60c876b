package accesslog

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// jsonFormat is lines of JSON objects.
type jsonFormat struct {
	named

	root node
	// text is the field whose text is a line of another format, as programs write that take
	// lines from containers; nil if there is none.
	text *node
	// line reads it.
	line lineFormat
}

// node is a key of an object.
type node struct {
	// name is the key, behind those of the objects that it stands in, with points between them.
	name  string
	below map[string]*node
	// slot is where the value goes, -1 for nowhere.
	slot int
	// isText says that the value is the text of another line, and within that some value below
	// is wanted.
	isText, within bool
}

// mostDepth bounds how deep fields stand.
const mostDepth = 8

func (*jsonFormat) about() kind { return fieldKind("json", "JSON", mostLine) }

func newJSONFormat(fields map[string]string, sample [][]byte) (lineFormat, error) {
	f := &jsonFormat{named: named{names: fields}}
	var first error
	for _, line := range sample {
		if err := f.look(line); err != nil && first == nil {
			first = fmt.Errorf("%w: %q", err, shorten(line))
		}
	}
	if len(f.first) == 0 {
		return nil, fmt.Errorf("no line is a JSON object: %w", first)
	}
	f.wrap(sample)
	return f, f.check()
}

// look learns the fields of a line.
func (f *jsonFormat) look(line []byte) error {
	s := jsonview.Scanner{Bytes: line, HexEscapes: true}
	err := f.learnObject(&s, &f.root, 1)
	if err == nil && s.Next() != 0 {
		return jsonview.ErrSyntax
	}
	return err
}

func (f *jsonFormat) learnObject(s *jsonview.Scanner, of *node, depth int) error {
	return s.Object(func(key []byte) error {
		n := of.below[string(key)]
		if n == nil {
			n = &node{name: string(key)}
			if of != &f.root {
				n.name = of.name + "." + n.name
			}
			if of.below == nil {
				of.below = map[string]*node{}
			}
			of.below[string(key)] = n
		}
		f.learn(n.name)
		from := s.Offset
		if s.Next() == '{' && depth < mostDepth {
			if f.objects == nil {
				f.objects = map[string]bool{}
			}
			f.objects[n.name] = true
			if err := f.learnObject(s, n, depth+1); err != nil {
				return err
			}
			s.Offset = from
		}
		value, _, err := s.Value(nil)
		f.see(n.name, value)
		return err
	})
}

// textNames are the fields in which a line of another format may stand: in logs of docker, of
// journald and of what collects logs.
var textNames = []string{"log", "message", "MESSAGE", "msg", "textPayload", "line"}

// wrap finds out whether the lines have lines of another format in them.
func (f *jsonFormat) wrap(sample [][]byte) {
	if f.calledIn(fieldStatus) != "" || f.calledIn(FieldMetadata) != "" || f.known["descriptors"] > 0 {
		return
	}
	for _, name := range textNames {
		if f.root.below[name] == nil {
			continue
		}
		var lines [][]byte
		for _, line := range sample {
			s := jsonview.Scanner{Bytes: line, HexEscapes: true}
			_ = s.Object(func(key []byte) error { // of a line that is none the begin counts
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
		if inner, err := recogniseLine(lines); err == nil && inner != nil && inner.calledIn(fieldTime) != "" {
			f.text, f.line = f.root.below[name], inner
			return
		}
	}
}

func (f *jsonFormat) calledIn(name string) string {
	if f.line != nil {
		if to := f.line.calledIn(name); to != "" {
			return to
		}
	}
	return f.named.calledIn(name)
}

func (f *jsonFormat) fields() []string {
	if f.line == nil {
		return f.first
	}
	return append(f.line.fields(), f.first...)
}

var errNoObject = errors.New("is no JSON object")

func (f *jsonFormat) use(l *layout) error {
	f.root.place(f.slots(l, f.line))
	if f.line == nil {
		return nil
	}
	f.text.isText = true
	return f.line.use(l)
}

// place says where the values of a node and of those below it go. It reports whether any is
// wanted.
func (n *node) place(slots map[string]int) bool {
	n.within = false
	for _, below := range n.below {
		if below.place(slots) {
			n.within = true
		}
	}
	slot, wanted := slots[n.name]
	if !wanted {
		slot = -1
	}
	n.slot = slot
	return wanted || n.within
}

func (f *jsonFormat) read(line []byte, l *Line, request func(error) error) error {
	s := &jsonview.Scanner{Bytes: line, HexEscapes: true}
	if s.Next() != '{' {
		return &LineError{l.base + s.Offset, errNoObject}
	}
	l.text = nil
	err := l.members(s, &f.root)
	if err == nil && s.Next() != 0 {
		err = jsonview.ErrSyntax
	}
	if err != nil {
		return &LineError{l.base + s.Offset, err}
	}
	if f.line != nil && l.text != nil {
		l.base = l.textAt
		return f.line.read(bytes.TrimRight(l.text, "\r\n"), l, request)
	}
	return request(nil)
}

// members takes an object. With [jsonview.Scanner.Object] a line would take a fifteenth longer.
func (l *Line) members(s *jsonview.Scanner, of *node) error {
	s.Offset++ // the brace
	if s.Next() == '}' {
		s.Offset++
		return nil
	}
	for {
		n, err := l.order.take(s, of)
		if err != nil {
			return err
		}
		if n == nil {
			err = s.Skip()
		} else {
			err = l.member(s, n)
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

// member takes the value of a key.
func (l *Line) member(s *jsonview.Scanner, n *node) (err error) {
	first, column := s.Next(), s.Offset
	if n.slot < 0 && n.within && first == '{' {
		return l.members(s, n)
	}
	var value []byte
	value, l.Scratch, err = s.Value(l.Scratch)
	if first == '[' {
		value, l.Scratch = onlyText(value, l.Scratch)
	}
	if n.isText && first == '"' {
		l.text, l.textAt = value, column
	}
	if n.slot >= 0 && value != nil && (first != '"' || string(value) != "-") {
		l.set(n.slot, column, value)
	}
	if err == nil && n.within && first == '{' {
		end := s.Offset
		s.Offset = column
		err = l.members(s, n)
		s.Offset = end
	}
	return err
}

// onlyText returns the text of a list that has one, as headers are written, and any other list
// as it is.
func onlyText(value, scratch []byte) (text, grown []byte) {
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
