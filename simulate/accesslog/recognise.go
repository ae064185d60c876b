package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

func timeHint(f lineFormat) string {
	if _, ok := f.(*textFormat); ok {
		return "add %START_TIME% to --format"
	}
	return "--format 'json time=FIELD'"
}

// newLineFormat reads --format.
func newLineFormat(name string, of *sample) (lineFormat, error) {
	words := strings.Fields(name)
	if len(words) == 0 || strings.Contains(name, "%") {
		return newTextFormat(name)
	}
	fields, err := fieldNames(words[1:])
	if err != nil {
		return nil, err
	}
	var f lineFormat
	switch words[0] {
	case "auto":
		if len(fields) > 0 {
			return nil, errors.New("--format auto: takes no fields: write json or csv before them")
		}
		f, err = recognise(of.lines)
	case "json", "requests":
		f, err = newJSONFormat(fields, of.lines)
	case "otlp":
		f, err = newOTLPFormat(fields, of.lines)
	case "csv":
		f, err = newCSVFormat(fields, of.lines)
	default:
		return nil, fmt.Errorf("--format %q: want auto, json, otlp, csv, requests or a format string of Envoy, such as '%%START_TIME%% %%REQ(:PATH)%%'", name)
	}
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
	if f, err := recogniseText(sample); err == nil {
		return f, nil
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

// recogniseText finds the text format that most of the first lines have.
func recogniseText(sample [][]byte) (*textFormat, error) {
	var best *textFormat
	most := 0
	for _, text := range []string{envoyFormat, istioFormat} {
		f, err := newTextFormat(text)
		if err != nil {
			return nil, err
		}
		if n := fitting(f, sample); n > most {
			best, most = f, n
		}
	}
	if most*2 > len(sample) {
		return best, nil
	}
	return nil, errUnrecognised(sample[0])
}

// fitting counts the lines that have a format.
func fitting(f lineFormat, sample [][]byte) int {
	l := newLayout()
	if f.use(l) != nil {
		return 0
	}
	v := newLine(l)
	n := 0
	timed := func() error {
		if v.of[slotTime] == nil {
			return errNoTimeField
		}
		_, err := l.clock.read(v.of[slotTime], &v.second)
		return err
	}
	for _, line := range sample {
		v.clear()
		if f.read(line, v, timed) == nil {
			n++
		}
	}
	return n
}
