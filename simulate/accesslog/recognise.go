package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
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
	objects := 0
	complete := 0
	for _, line := range sample {
		if line[0] == '{' {
			objects++
			if line[len(line)-1] == '}' {
				complete++
			}
		}
	}
	if objects*2 > len(sample) {
		return newJSONFormat(nil, sample)
	}
	if f, err := recogniseText(sample); f != nil || err != nil {
		return f, err
	}
	if complete*sampleDivisor >= len(sample) {
		return newJSONFormat(nil, sample)
	}
	return nil, nil
}

// recogniseText returns the text format that matches most of the first lines, or nil. A later row
// of the table wins only if it matches more lines by over 5 % of the sample.
func recogniseText(sample [][]byte) (lineParser, error) {
	var best *textFormat
	matched := 0
	for _, t := range textFormats {
		f, err := newTextFormat(t.format)
		if err != nil {
			return nil, err
		}
		f.server = t.server
		if n := countMatching(f, sample); n > matched+len(sample)/20 {
			best = f
			matched = n
		}
		if matched == len(sample) {
			break
		}
	}
	if matched == 0 || matched*sampleDivisor < len(sample) {
		return nil, nil
	}
	return best, nil
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
			if _, bad := f.scanDelimited(line, starts, ends); bad < 0 && starts[len(f.ops)-1] < len(line) {
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
	for _, o := range fileSignatures {
		if bytes.HasPrefix(line, []byte(o.prefix)) {
			return fmt.Errorf("the log is %s; pipe it as text: %s LOG | sluice simulate -", o.kind, o.command)
		}
	}
	const shown = 200
	text := string(line[:min(len(line), shown)])
	if len(line) > shown {
		text += "..."
	}
	return fmt.Errorf("unknown log format%s; give the format string of Envoy or nginx with --format, such as '%%START_TIME%% %%REQ(:PATH)%%' or '$time_local $request_uri': %q",
		nearestFormat(line), text)
}

// fileSignatures are the first bytes of files that must be converted to text first.
var fileSignatures = []struct{ prefix, kind, command string }{
	{"BZh", "compressed by bzip2", "bzip2 -dc"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -dc"},
	{"\xfd7zXZ\x00", "compressed by xz", "xz -dc"},
	{"PK\x03\x04", "a zip archive", "unzip -p"},
	{"\xff\xfe", "in UTF-16", "iconv -f UTF-16 -t UTF-8"},
	{"\xfe\xff", "in UTF-16", "iconv -f UTF-16 -t UTF-8"},
}

// nearestFormat describes the text format most similar to a line, from its start or after one of
// prefixes, or returns "" if none is similar.
func nearestFormat(line []byte) string {
	starts := []int{0}
	for _, prefix := range prefixes {
		if at := skipPrefix(prefix, line); at > 0 {
			starts = append(starts, at)
		}
	}
	best := 0.05
	hint := ""
	for _, t := range textFormats {
		f, err := newTextFormat(t.format)
		if err != nil {
			continue // impossible; checked by a test
		}
		for _, start := range starts {
			if share, at := f.similarity(line[start:]); share > best {
				best = share
				hint = fmt.Sprintf(" (most similar: %s, %s; differs at column %d)", t.server, t.format, start+at+1)
			}
		}
	}
	return hint
}

// skipPrefix returns the length of a prefix that the line has, or 0.
func skipPrefix(prefix string, line []byte) int {
	f, err := newTextFormat(prefix)
	if err != nil {
		return 0 // impossible; checked by a test
	}
	starts := make([]int, len(f.ops))
	ends := make([]int, len(f.ops))
	if _, bad := f.scanDelimited(line, starts, ends); bad >= 0 {
		return 0
	}
	for i := range f.ops {
		if f.implausible(i, line[starts[i]:ends[i]]) {
			return 0
		}
	}
	return starts[len(f.ops)-1]
}

// similarity returns how similar a line is to a format, up to 1, and the column of the first
// difference: the share of operators that match, times the share of the line that they cover.
func (f *textFormat) similarity(line []byte) (share float64, at int) {
	n := 0
	if f.delimited {
		starts := make([]int, len(f.ops))
		ends := make([]int, len(f.ops))
		n, at = f.scanDelimited(line, starts, ends)
		for i := range n {
			if f.implausible(i, line[starts[i]:ends[i]]) {
				n = i
				at = starts[i]
				break
			}
		}
	} else {
		for i, literal := range f.literals[:len(f.ops)] {
			j := bytes.Index(line[at:], literal)
			if j < 0 || i == 0 && j > 0 || i > 0 && f.implausible(i-1, line[at:at+j]) {
				break
			}
			n++
			at = at + j + len(literal)
		}
	}
	at = max(at, 0)
	return float64(n) / float64(len(f.ops)) * float64(at) / float64(max(len(line), 1)), at
}

// implausible reports whether a value matches an operator only because any word does: it is empty,
// or not a time or address where one is expected.
func (f *textFormat) implausible(i int, value []byte) bool {
	op := &f.ops[i]
	switch {
	case op.class == word && len(value) == 0:
		return true
	case op.name == "remote_addr":
		return !isAbsent(value) && !bytes.ContainsAny(value, ".:")
	}
	if !slices.Contains(fieldAliases[fieldTime], op.name) {
		return false
	}
	at, err := anyTimeFormat.parse(value, &parsedSecond{})
	return err != nil || at < 1e17 // numbers with another meaning, such as a day, read as times in 1970
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
