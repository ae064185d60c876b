package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

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
					&s, found.about().timeHint, strings.Join(found.fields(), ", "))
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
		s, first, f.about().name, shorten(s.lines[0]))
}

// namedFormats are those that --format names, and how they are read from the first lines.
var namedFormats = map[string]func(fields map[string]string, sample [][]byte) (lineFormat, error){
	"auto": func(fields map[string]string, sample [][]byte) (lineFormat, error) {
		if len(fields) > 0 {
			return nil, errors.New("--format auto: takes no fields: write json or csv before them")
		}
		return recognise(sample)
	},
	"json": newJSONFormat, "requests": newJSONFormat, "otlp": newOTLPFormat, "csv": newCSVFormat,
}

// newLineFormat reads --format.
func newLineFormat(format string, of *sample) (lineFormat, error) {
	parts := strings.Fields(format)
	if len(parts) == 0 || strings.Contains(format, "%") {
		return newTextFormat(format)
	}
	fields, err := namesOf(parts[1:])
	if err != nil {
		return nil, err
	}
	read := namedFormats[parts[0]]
	if read == nil {
		return nil, errNoFormat(format)
	}
	f, err := read(fields, of.lines)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", of, err)
	}
	return f, nil
}

// recognise finds the format that most of the first lines have.
func recognise(sample [][]byte) (lineFormat, error) {
	json := 0
	for _, line := range sample {
		if line[0] == '{' {
			json++
		}
	}
	if json*2 > len(sample) {
		if bytes.Contains(sample[0], []byte(`"resourceLogs"`)) {
			return newOTLPFormat(nil, sample)
		}
		return newJSONFormat(nil, sample)
	}
	if f, err := recogniseText(sample); f != nil || err != nil {
		return f, err
	}
	if f, err := newCSVFormat(nil, sample); err == nil && f.calledIn(fieldTime) != "" {
		return f, nil
	}
	return nil, errUnrecognised(sample[0])
}

func errUnrecognised(line []byte) error {
	if line[0] == '{' || line[0] == '[' {
		return fmt.Errorf("the lines look like JSON, but most are no objects: write each object on a line of its own, as jq -c does: %q", shorten(line))
	}
	return fmt.Errorf("the line is in no format that is known: give Envoy's format string with --format, such as '%%START_TIME%% %%REQ(:PATH)%%': %q", shorten(line))
}
