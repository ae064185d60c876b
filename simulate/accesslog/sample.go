package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// sample is the first lines of a log that are not empty.
type sample struct {
	log   string
	lines [][]byte
	// row numbers the first of them.
	row int
}

const (
	// sampleLines is by how many lines a log is recognised.
	sampleLines = 100
	sampleBytes = 4 << 20
)

func (s *sample) String() string { return fmt.Sprintf("%s:%d", s.log, s.row) }

// take reads the sample of a log.
func (s *sample) take(in Log) error {
	f, err := in.Open()
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read from
	enough := errors.New("enough")
	read, empty := 0, 0
	err = chunks(f, mostOTLPLine, func(c Chunk) error {
		for line := range bytes.Lines(c.Bytes) {
			if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
				s.lines = append(s.lines, line)
			} else if len(s.lines) == 0 {
				empty++
			}
		}
		if read += len(c.Bytes); len(s.lines) >= sampleLines || read > sampleBytes {
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return fmt.Errorf("%s: %w", in.Name, err)
	}
	s.log, s.row, s.lines = in.Name, empty+1, s.lines[:min(len(s.lines), sampleLines)]
	return nil
}

// Recognise returns the format of logs, which are of one. Format is auto, json, otlp, csv,
// requests, or a format string of Envoy; after json, otlp and csv may stand NAME=FIELD, which
// says what a field is called. With auto the first log that is not empty tells it.
func Recognise(logs []Log, format string) (*Format, error) {
	if len(logs) == 0 {
		return nil, errors.New("no log: name a file, or - for standard input")
	}
	var first sample
	var found lineFormat
	for _, in := range logs {
		var s sample
		switch err := s.take(in); {
		case err != nil:
			return nil, err
		case len(s.lines) == 0:
		case found == nil:
			if found, err = newLineFormat(format, &s); err != nil {
				return nil, err
			}
			if found.calledIn(fieldTime) == "" {
				return nil, fmt.Errorf("%v: no field is known as the time: say which one is: %s; the first line has %s",
					&s, timeHint(found), strings.Join(found.fields(), ", "))
			}
			first = s
		default:
			if err := s.alike(found, &first, format); err != nil {
				return nil, err
			}
		}
	}
	if found == nil {
		return nil, NoLines(logs)
	}
	return newFormat(found), nil
}

// alike returns an error if the log is not in the format of the first one. Where --format
// says the format, lines that do not have it are counted.
func (s *sample) alike(f lineFormat, first *sample, name string) error {
	if csv, ok := f.(*csvFormat); ok {
		// A part of a log that was cut has no header.
		if !bytes.Equal(s.lines[0], csv.header) && fitting(f, s.lines[:1]) == 0 {
			return fmt.Errorf("%v: this is not the header of %v, so that fields would be taken for others: simulate these logs one by one: %q",
				s, first, shorten(s.lines[0]))
		}
		return nil
	}
	if name != "auto" || fitting(f, s.lines) > 0 {
		return nil
	}
	return fmt.Errorf("%v: this log is not in the format of %v, which is %s: simulate logs of different formats one by one: %q",
		s, first, formatName(f), shorten(s.lines[0]))
}

func formatName(f lineFormat) string {
	switch f.(type) {
	case *jsonFormat:
		return "JSON"
	case *otlpFormat:
		return "OpenTelemetry's JSON"
	default:
		return "text"
	}
}

// NoLines is the error that logs have no lines.
func NoLines(logs []Log) error {
	var names []string
	for _, l := range logs {
		names = append(names, l.Name)
	}
	if len(names) > 3 {
		names = append(names[:3], "...")
	}
	return fmt.Errorf("%s: no lines", strings.Join(names, ", "))
}
