package accesslog

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/sluice-ratelimit/sluice/jsonview"
)

// jsonFormat is lines of JSON objects.
type jsonFormat struct{ named }

func (*jsonFormat) about() kind { return kind{"JSON", fieldHint, mostLine} }

func newJSONFormat(fields map[string]string, sample [][]byte) (lineFormat, error) {
	f := &jsonFormat{named{names: fields}}
	var first error
	for _, line := range sample {
		if err := f.look(line); err != nil && first == nil {
			first = fmt.Errorf("%w: %q", err, shorten(line))
		}
	}
	if len(f.first) == 0 {
		return nil, fmt.Errorf("no line is a JSON object: %w", first)
	}
	return f, f.check()
}

// look learns the fields of a line.
func (f *jsonFormat) look(line []byte) error {
	s := jsonview.Scanner{Bytes: line}
	err := s.Object(func(key []byte) error {
		f.learn(string(key))
		value, _, err := s.Value(nil)
		if f.metadata == "" && isMetadata(value) {
			f.metadata = string(key)
		}
		return err
	})
	if err == nil && s.Next() != 0 {
		return jsonview.ErrSyntax
	}
	return err
}

var errNoObject = errors.New("is no JSON object")

func (f *jsonFormat) use(l *layout) error {
	f.place(l)
	return nil
}

func (f *jsonFormat) read(line []byte, l *Line, request func() error) error {
	s := &jsonview.Scanner{Bytes: line}
	if s.Next() != '{' {
		return &LineError{s.At, errNoObject}
	}
	s.At++
	var err error
	if s.Next() == '}' {
		s.At++
	} else {
		err = f.members(s, l)
	}
	if err == nil && s.Next() != 0 {
		err = jsonview.ErrSyntax
	}
	if err != nil {
		return &LineError{s.At, err}
	}
	return request()
}

// members takes what stands in an object. With [jsonview.Scanner.Object] a line would take a
// fifteenth longer.
func (f *jsonFormat) members(s *jsonview.Scanner, l *Line) error {
	for i := 0; ; i++ {
		slot, err := l.order.take(s, i, f.slots)
		if err != nil {
			return err
		}
		if slot < 0 {
			err = s.Skip()
		} else {
			quoted := s.Next() == '"'
			column := s.At
			var value []byte
			value, l.Scratch, err = s.Value(l.Scratch)
			if value != nil && (!quoted || string(value) != "-") {
				l.set(slot, column, value)
			}
		}
		if err != nil {
			return err
		}
		if s.Next() != ',' {
			return s.Take('}')
		}
		s.At++
	}
}

// isMetadata reports whether a value is what the rate limit filter keeps of a reply.
func isMetadata(value []byte) bool {
	return len(value) > 0 && value[0] == '{' && bytes.Contains(value, []byte(`"domain"`)) && bytes.Contains(value, []byte(`"descriptors"`))
}
