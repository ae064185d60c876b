package accesslog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/simulate/jsonview"
)

// otlpFormat is what OpenTelemetry's collectors write as lines of JSON: each has records,
// each of which has the attributes of a request, or Envoy's text as its body.
type otlpFormat struct {
	named
	// timeSlot is where timeUnixNano goes, -1 if an attribute is the time.
	timeSlot int
	// body reads the text, if that has what is wanted; nil if it does not.
	body *textFormat
}

var errOTLP = errors.New("has no resourceLogs")

func newOTLPFormat(names map[string]string, sample [][]byte) (*otlpFormat, error) {
	f := &otlpFormat{named: named{names: names}}
	var bodies [][]byte
	var first error
	for _, line := range sample {
		err := eachRecord(line, func(s *jsonview.Scanner) error {
			return s.Object(func(key []byte) (err error) {
				switch string(key) {
				case otlpTime:
					f.learn(otlpTime)
					return s.Skip()
				case "body":
					var body []byte
					if body, err = anyValue(s, &[]byte{}); len(body) > 0 {
						bodies = append(bodies, body)
					}
					return err
				case "attributes":
					return attributes(s, &[]byte{}, func(key, _ []byte) { f.learn(string(key)) })
				default:
					return s.Skip()
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
		f.body = recogniseText(bodies)
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
	_ = f.named.use(l) // never fails
	f.timeSlot = f.slot([]byte(otlpTime))
	if f.body != nil {
		return f.body.use(l)
	}
	return nil
}

func (f *otlpFormat) read(line []byte, l *Line, request func() error) error {
	return eachRecord(line, func(s *jsonview.Scanner) error {
		l.clear()
		var time, body []byte
		timeAt := 0
		err := s.Object(func(key []byte) (err error) {
			switch string(key) {
			case otlpTime:
				s.Next()
				timeAt = s.At
				time, l.Scratch, err = s.Value(l.Scratch)
			case "body":
				body, err = anyValue(s, &l.Scratch)
			case "attributes":
				return attributes(s, &l.Scratch, func(key, value []byte) {
					if slot := f.slot(key); slot >= 0 && value != nil && string(value) != "-" {
						l.set(slot, s.At, value)
					}
				})
			default:
				return s.Skip()
			}
			return err
		})
		if err == nil && f.body != nil && body != nil {
			err = f.body.parse(body, l)
		}
		if err != nil {
			return err
		}
		if f.timeSlot >= 0 && l.of[f.timeSlot] == nil && string(time) != "0" {
			l.set(f.timeSlot, timeAt, time)
		}
		return request()
	})
}

// eachRecord calls use with each record of a line. Use takes it.
func eachRecord(line []byte, use func(s *jsonview.Scanner) error) error {
	s := jsonview.Scanner{Bytes: line}
	found := false
	below := func(name string, inner func() error) func() error {
		return func() error {
			return s.Object(func(key []byte) error {
				if string(key) != name {
					return s.Skip()
				}
				return s.List(inner)
			})
		}
	}
	records := below("logRecords", func() error { return use(&s) })
	err := s.Object(func(key []byte) error {
		if string(key) != "resourceLogs" {
			return s.Skip()
		}
		found = true
		return s.List(below("scopeLogs", records))
	})
	switch at := (&LineError{}); {
	case errors.As(err, &at):
		return err
	case err != nil:
		return &LineError{s.At, err}
	case !found:
		return &LineError{0, errOTLP}
	case s.Next() != 0:
		return &LineError{s.At, jsonview.ErrSyntax}
	default:
		return nil
	}
}

// anyValue takes an AnyValue and returns its text: nil of a list.
func anyValue(s *jsonview.Scanner, scratch *[]byte) (value []byte, err error) {
	err = s.Object(func(key []byte) (err error) {
		var text []byte
		switch string(key) {
		case "stringValue", "intValue", "doubleValue", "boolValue":
			text, *scratch, err = s.Value(*scratch)
			value = text
			return err
		default:
			return s.Skip()
		}
	})
	return value, err
}

// attributes takes a list of KeyValue.
func attributes(s *jsonview.Scanner, scratch *[]byte, use func(key, value []byte)) error {
	return s.List(func() error {
		var name, value []byte
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
		use(name, value)
		return err
	})
}
