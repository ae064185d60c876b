package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Recognise detects the format of logs, which all have the same. format is auto, json, requests, or
// a format string of Envoy or nginx. NAME=FIELD after json names the log's field. With auto, the
// first nonempty log determines the format.
func Recognise(logs []Log, format string) (*Format, error) {
	if len(logs) == 0 {
		return nil, errors.New("no logs; name a file, or - for standard input")
	}
	var first sample
	var found lineParser
	for _, in := range logs {
		var s sample
		switch err := s.read(in); {
		case err != nil:
			return nil, err
		case len(s.lines) == 0:
		case found == nil:
			if found, err = newLineParser(format, &s); err != nil {
				return nil, err
			}
			if found.logName(fieldTime) == "" {
				return nil, fmt.Errorf("%v: no known time field; specify it with %s; the first lines have %s",
					&s, found.info().timeHint, joinNames(found.fields()))
			}
			first = s
		default:
			if err := s.checkFormat(found, &first, format); err != nil {
				return nil, err
			}
		}
	}
	if found == nil {
		return nil, NoLinesError(logs)
	}
	return newFormat(found), nil
}

// checkFormat returns an error if the log does not have the format of the first one. If --format is
// explicit, other lines are counted as bad instead.
func (s *sample) checkFormat(f lineParser, first *sample, name string) error {
	if name != "auto" || countMatching(f, s.lines) > 0 {
		return nil
	}
	return fmt.Errorf("%v: the format differs from that of %v (%s); simulate logs of different formats separately: %q",
		s, first, f.info().name, truncate(s.lines[0]))
}

func newLineParser(format string, s *sample) (f lineParser, err error) {
	parts := strings.Fields(format)
	if len(parts) == 0 || strings.ContainsAny(format, "%$") {
		return newTextFormat(format)
	}
	fields, err := parseRenamings(parts[1:])
	if err != nil {
		return nil, err
	}
	switch {
	case parts[0] == "json" || parts[0] == "requests":
		f, err = newJSONFormat(fields, s.lines)
	case parts[0] != "auto":
		return nil, errUnknownFormat(format)
	case len(fields) > 0:
		err = errors.New("--format auto accepts no fields; write json before them")
	default:
		f, err = recognise(s.lines)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", s, err)
	}
	return f, nil
}

// sampleDivisor determines the required share of the first lines, 1/10, that a format must match:
// programs also write other lines when they start.
const sampleDivisor = 10

func recognise(sample [][]byte) (lineParser, error) {
	for _, try := range []func([][]byte) (lineParser, error){recogniseLine, recognisePrefixed} {
		if f, err := try(sample); f != nil || err != nil {
			return f, err
		}
	}
	return nil, errUnrecognised(sample[0])
}

// recogniseLine returns the parser that matches most of the first lines from their start, or nil.
func recogniseLine(sample [][]byte) (lineParser, error) {
	text, matched, err := recogniseText(sample)
	if err != nil {
		return nil, err
	}
	objects := 0
	for _, line := range sample {
		if line[0] == '{' && line[len(line)-1] == '}' {
			objects++
		}
	}
	switch {
	case max(matched, objects)*sampleDivisor < len(sample):
		return nil, nil
	case objects > matched:
		return newJSONFormat(nil, sample)
	default:
		return text, nil
	}
}

// recogniseText returns the text format that matches most of the first lines, and their number.
func recogniseText(sample [][]byte) (best *textFormat, matched int, err error) {
	for _, t := range textFormats {
		f, err := newTextFormat(t.format)
		if err != nil {
			return nil, 0, err
		}
		f.server = t.server
		if n := countMatching(f, sample); n > matched {
			best = f
			matched = n
		}
	}
	return best, matched, nil
}

// recognisePrefixed returns the format of lines that begin with one of prefixes and continue in
// another format, or nil.
func recognisePrefixed(sample [][]byte) (lineParser, error) {
	for _, prefix := range prefixes {
		f, err := newTextFormat(prefix)
		if err != nil {
			return nil, err
		}
		starts := make([]int, len(f.ops))
		ends := make([]int, len(f.ops))
		var lines [][]byte
		for _, line := range sample {
			if bad := f.scanDelimited(line, starts, ends); bad < 0 && starts[len(f.ops)-1] < len(line) {
				lines = append(lines, line[starts[len(f.ops)-1]:])
			}
		}
		if len(lines)*sampleDivisor < len(sample) || len(lines) == 0 {
			continue
		}
		if inner, err := recogniseLine(lines); err == nil && inner != nil {
			f.inner = inner
			if countMatching(f, sample)*sampleDivisor >= len(sample) {
				return f, nil
			}
		}
	}
	return nil, nil
}

func errUnrecognised(line []byte) error {
	if line[0] == '{' || line[0] == '[' && bytes.HasPrefix(bytes.TrimLeft(line[1:], " "), []byte("{")) ||
		len(line) == 1 && line[0] == '[' {
		return fmt.Errorf("the log looks like JSON, but most lines are not objects; write one object per line, as jq -c does: %q", truncate(line))
	}
	const shown = 200
	text := string(line[:min(len(line), shown)])
	if len(line) > shown {
		text += "..."
	}
	return fmt.Errorf("unknown log format; give the format string of Envoy or nginx with --format, such as '%%START_TIME%% %%REQ(:PATH)%%' or '$time_local $request_uri': %q", text)
}

// sample contains the first nonempty lines of a log.
type sample struct {
	log   string
	lines [][]byte
	// row is the line number of the first of them.
	row int
}

const (
	// A log is recognised by its first sampleLines lines or sampleBytes bytes.
	sampleLines = 1000
	sampleBytes = 4 << 20
)

func (s *sample) String() string { return fmt.Sprintf("%s:%d", s.log, s.row) }

// read reads the sample of a log. It stops at a line longer than the maximum, which might not fit
// into memory.
func (s *sample) read(in Log) error {
	f, err := in.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	enough := errors.New("enough")
	read := 0
	empty := 0
	tooLong := false
	err = ReadChunks(f, func(c Chunk) error {
		if c.tooLong {
			tooLong = true
			return enough
		}
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
	s.log = in.Name
	s.row = empty + 1
	s.lines = s.lines[:min(len(s.lines), sampleLines)]
	if tooLong && len(s.lines) == 0 {
		return fmt.Errorf("%v: %w", s, errTooLong)
	}
	return nil
}
