package accesslog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// otlpFormat is what OpenTelemetry's collectors write as lines of JSON: each has records,
// each of which has the attributes of a request, or Envoy's text as its body.
type otlpFormat struct {
	named
	// slots is where values go, by what fields are called in the log.
	slots map[string]int
	// body reads the text, if that has what is wanted; nil if it does not.
	body lineFormat
}

var errOTLP = errors.New("has no resourceLogs")

func (*otlpFormat) about() kind { return fieldKind("otlp", "OpenTelemetry's JSON", mostOTLPLine) }

func newOTLPFormat(names map[string]string, sample [][]byte) (lineFormat, error) {
	f := &otlpFormat{named: named{names: names}}
	var bodies [][]byte
	var first error
	for _, line := range sample {
		err := eachRecord(line, func(s *jsonview.Scanner) error {
			return fieldsOf(s, new([]byte), func(name, value []byte, _ int) {
				switch {
				case name != nil:
					f.learn(string(name))
					f.see(string(name), value)
				case len(value) > 0:
					bodies = append(bodies, value)
				}
			})
		})
		if err != nil && first == nil {
			first = fmt.Errorf("%w: %q", err, shorten(line))
		}
	}
	if len(f.first) == 0 && len(bodies) == 0 {
		return nil, fmt.Errorf("no line has log records of OpenTelemetry: %w", first)
	}
	if len(bodies) > 0 {
		var err error
		if f.body, err = recogniseLine(bodies); err != nil {
			return nil, err
		}
	}
	return f, f.check()
}

func (f *otlpFormat) calledIn(name string) string {
	if to := f.named.calledIn(name); to != "" || f.body == nil {
		return to
	}
	return f.body.calledIn(name)
}

func (f *otlpFormat) fields() []string {
	if f.body == nil {
		return f.first
	}
	return append(slices.Clip(f.first), f.body.fields()...)
}

func (f *otlpFormat) use(l *layout) error {
	f.slots = f.named.slots(l, nil)
	if f.body == nil {
		return nil
	}
	return f.body.use(l)
}

func (f *otlpFormat) read(line []byte, l *Line, request func(error) error) error {
	return eachRecord(line, func(s *jsonview.Scanner) error {
		l.clear()
		var body []byte
		bodyAt := 0
		err := fieldsOf(s, &l.Scratch, func(name, value []byte, column int) {
			if name == nil {
				body, bodyAt = value, column
			} else if slot, wanted := f.slots[string(name)]; wanted && value != nil && string(value) != "-" {
				l.set(slot, column, value)
			}
		})
		switch {
		case err != nil:
			return err
		case f.body == nil || body == nil:
			return request(nil)
		}
		l.base = bodyAt
		if err := f.body.read(body, l, request); err != nil && !errors.Is(err, errHeader) { // its time is the request's
			return request(err)
		}
		return nil
	})
}

// eachRecord calls use with each record of a line. Use takes it.
func eachRecord(line []byte, use func(s *jsonview.Scanner) error) error {
	s := jsonview.Scanner{Bytes: line}
	found := false
	err := within(&s, "resourceLogs", func() error {
		found = true
		return within(&s, "scopeLogs", func() error {
			return within(&s, "logRecords", func() error { return use(&s) })
		})
	})
	switch at := (&LineError{}); {
	case errors.As(err, &at):
		return err
	case err != nil:
		return &LineError{s.Offset, err}
	case !found:
		return &LineError{0, errOTLP}
	case s.Next() != 0:
		return &LineError{s.Offset, jsonview.ErrSyntax}
	default:
		return nil
	}
}

// within takes an object and calls element for each of the list that has a name in it.
func within(s *jsonview.Scanner, name string, element func() error) error {
	return s.Object(func(key []byte) error {
		if string(key) != name {
			return s.Skip()
		}
		return s.List(element)
	})
}

// fieldsOf takes a record and calls use with what it has, and where: its time, its attributes
// and, without a name, its body.
func fieldsOf(s *jsonview.Scanner, scratch *[]byte, use func(name, value []byte, column int)) error {
	return s.Object(func(key []byte) (err error) {
		s.Next()
		column := s.Offset
		var value []byte
		switch string(key) {
		case otlpTime:
			if value, *scratch, err = s.Value(*scratch); string(value) == "0" {
				value = nil // as it is written if there is none
			}
			use(key, value, column)
		case "body":
			value, err = anyValue(s, scratch)
			use(nil, value, column)
		case "attributes":
			return attributes(s, scratch, use)
		default:
			return s.Skip()
		}
		return err
	})
}

// anyValue takes an AnyValue and returns its text: nil of a list.
func anyValue(s *jsonview.Scanner, scratch *[]byte) (value []byte, err error) {
	err = s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "stringValue", "intValue", "doubleValue", "boolValue":
			value, *scratch, err = s.Value(*scratch)
			return err
		default:
			return s.Skip()
		}
	})
	return value, err
}

// attributes takes a list of KeyValue.
func attributes(s *jsonview.Scanner, scratch *[]byte, use func(name, value []byte, column int)) error {
	return s.List(func() error {
		var name, value []byte
		column := s.Offset
		err := s.Object(func(key []byte) (err error) {
			switch string(key) {
			case "key":
				name, *scratch, err = s.Value(*scratch)
			case "value":
				value, err = anyValue(s, scratch)
			default:
				err = s.Skip()
			}
			return err
		})
		if name != nil {
			use(name, value, column)
		}
		return err
	})
}
