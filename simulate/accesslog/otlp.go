package accesslog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// otlpFormat reads OpenTelemetry collectors' JSON lines. A line has several records, each with the
// attributes of a request, or with Envoy's text log line as its body.
type otlpFormat struct {
	namedFields
	// slots are by the log's name of the field.
	slots map[string]int
	// body parses the records' text bodies, or is nil.
	body lineParser
}

var errOTLP = errors.New("no resourceLogs")

func (*otlpFormat) info() formatInfo {
	return fieldFormatInfo("otlp", "OpenTelemetry's JSON", maxOTLPLineBytes)
}

func newOTLPFormat(names map[string]string, sample [][]byte) (lineParser, error) {
	f := &otlpFormat{namedFields: namedFields{renamed: names}}
	var bodies [][]byte
	var first error
	for _, line := range sample {
		err := eachRecord(line, func(s *jsonview.Scanner) error {
			return readRecord(s, new([]byte), func(name, value []byte, _ int) {
				switch {
				case name != nil:
					f.observeName(string(name))
					f.observeValue(string(name), value)
				case len(value) > 0:
					bodies = append(bodies, value)
				}
			})
		})
		if err != nil && first == nil {
			first = fmt.Errorf("%w: %q", err, truncate(line))
		}
	}
	if len(f.observed) == 0 && len(bodies) == 0 {
		return nil, fmt.Errorf("no line has log records of OpenTelemetry: %w", first)
	}
	if len(bodies) > 0 {
		var err error
		if f.body, err = recogniseLine(bodies); err != nil {
			return nil, err
		}
	}
	return f, f.checkRenamed()
}

func (f *otlpFormat) logName(name string) string {
	if to := f.namedFields.logName(name); to != "" || f.body == nil {
		return to
	}
	return f.body.logName(name)
}

func (f *otlpFormat) fields() []string {
	if f.body == nil {
		return f.observed
	}
	return append(slices.Clip(f.observed), f.body.fields()...)
}

func (f *otlpFormat) bind(l *layout) error {
	f.slots = f.slotsByName(l, nil)
	if f.body == nil {
		return nil
	}
	return f.body.bind(l)
}

func (f *otlpFormat) read(line []byte, l *Line, request func(error) error) error {
	return eachRecord(line, func(s *jsonview.Scanner) error {
		l.clear()
		var body []byte
		bodyAt := 0
		err := readRecord(s, &l.Scratch, func(name, value []byte, column int) {
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
		l.baseColumn = bodyAt
		if err := f.body.read(body, l, request); err != nil && !errors.Is(err, errHeader) {
			return request(err) // a bad body affects only its record
		}
		return nil
	})
}

// eachRecord calls use with each record of a line. use must consume it.
func eachRecord(line []byte, use func(s *jsonview.Scanner) error) error {
	s := jsonview.Scanner{Bytes: line}
	found := false
	err := eachElement(&s, "resourceLogs", func() error {
		found = true
		return eachElement(&s, "scopeLogs", func() error {
			return eachElement(&s, "logRecords", func() error { return use(&s) })
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

// eachElement consumes an object and calls element for each element of its list name.
func eachElement(s *jsonview.Scanner, name string, element func() error) error {
	return s.Object(func(key []byte) error {
		if string(key) != name {
			return s.Skip()
		}
		return s.List(element)
	})
}

// readRecord consumes a record and calls use with its time, its attributes and, with a nil name,
// its body.
func readRecord(s *jsonview.Scanner, scratch *[]byte, use func(name, value []byte, column int)) error {
	return s.Object(func(key []byte) (err error) {
		s.Next()
		column := s.Offset
		var value []byte
		switch string(key) {
		case otlpTime:
			if value, *scratch, err = s.Value(*scratch); string(value) == "0" {
				value = nil // no time
			}
			use(key, value, column)
		case "body":
			value, err = readAnyValue(s, scratch)
			use(nil, value, column)
		case "attributes":
			return readAttributes(s, scratch, use)
		default:
			return s.Skip()
		}
		return err
	})
}

// readAnyValue consumes an AnyValue and returns its text, or nil for a list.
func readAnyValue(s *jsonview.Scanner, scratch *[]byte) (value []byte, err error) {
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

func readAttributes(s *jsonview.Scanner, scratch *[]byte, use func(name, value []byte, column int)) error {
	return s.List(func() error {
		var name, value []byte
		column := s.Offset
		err := s.Object(func(key []byte) (err error) {
			switch string(key) {
			case "key":
				name, *scratch, err = s.Value(*scratch)
			case "value":
				value, err = readAnyValue(s, scratch)
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
