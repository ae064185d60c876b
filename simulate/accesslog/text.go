package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/jsonview"
)

// A text format is literals and operators in turn. Envoy escapes nothing in it: a user
// agent with quotes stands as it is. So a line may be read in more than one way. Each
// literal is first looked for from the left, which gives the leftmost place that it can
// have in any reading. It is the only one if the value before the next literal does not
// have it again; only then are other readings looked for, and a value that is not the same
// in all of them is not certain.
//
// That is for Envoy's format strings. Other servers escape what they put into quotes, and
// their formats, with names of variables as nginx has them, are read as [textFormat.fencedIn]
// says.
type textFormat struct {
	// server is who writes the format, as far as is known.
	server string
	// named has the variables, and fenced says that no value can be read in several ways.
	named
	hasVariables, fenced bool
	// header is the line that names the fields, of a format in which lines that begin with # are
	// no requests; nil of other formats.
	header []byte
	// line reads what the last variable has, a line of another format; nil if it is none.
	line lineFormat
	// literals has one more element than ops: they stand around them.
	literals [][]byte
	ops      []operator
	// again is parallel to ops: how the literal before a value can come again in it.
	again []again
	// slots is where a value goes; -1 for nowhere.
	slots []int
}

// again says where a literal can come again before the next one.
type again struct {
	// heads are what a value begins with if the literal comes again before its own end, as
	// `" "` does in `" " "`.
	heads [][]byte
	// inside says that the value can hold it. One that lacks the next literal holds none
	// that has that in it.
	inside bool
	// possible says that isOnly is to be asked.
	possible bool
}

func (f *textFormat) about() kind {
	if f.hasVariables {
		return kind{cmp.Or(f.server, "text"), "add $time_local, $time_iso8601 or $msec to --format", mostLine}
	}
	return kind{cmp.Or(f.server, "text"), "add %START_TIME% to --format", mostLine}
}

// newTextFormat reads a format string: Envoy's, or one with variables as nginx has them.
func newTextFormat(format string) (*textFormat, error) {
	format = strings.TrimSuffix(strings.TrimSuffix(format, "\n"), `\n`)
	f := &textFormat{}
	var err error
	if f.hasVariables = !strings.Contains(format, "%") && strings.Contains(format, "$"); f.hasVariables {
		f.readVariables(format)
	} else {
		err = f.readOperators(format)
	}
	if err != nil {
		return nil, err
	}
	if len(f.ops) == 0 {
		return nil, errNoFormat(format)
	}
	for i := 1; i < len(f.ops); i++ {
		if len(f.literals[i]) == 0 {
			return nil, fmt.Errorf("--format: nothing stands between %s and %s, so that a line does not say where one ends", f.ops[i-1].name, f.ops[i].name)
		}
	}
	f.seekAgain()
	return f, nil
}

// readOperators reads a format string of Envoy.
func (f *textFormat) readOperators(format string) error {
	var literal []byte
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			literal = append(literal, format[i])
			continue
		}
		if strings.HasPrefix(format[i:], "%%") {
			literal = append(literal, '%')
			i++
			continue
		}
		end := operatorEnd(format, i+1)
		if end < 0 {
			return fmt.Errorf("--format: %q has a %% without an end", format[i:min(len(format), i+20)])
		}
		op, err := newOperator(format[i+1 : end])
		if err != nil {
			return fmt.Errorf("--format: %w", err)
		}
		f.literals = append(f.literals, literal)
		f.ops = append(f.ops, op)
		literal = nil
		i = end
	}
	f.literals = append(f.literals, literal)
	return nil
}

// seekAgain finds out how literals can come again.
func (f *textFormat) seekAgain() {
	for i := range f.ops {
		var a again
		if here := f.literals[i]; i > 0 {
			a.inside = i == len(f.ops)-1 || !bytes.Contains(here, f.literals[i+1])
			for n := 1; n < len(here); n++ {
				if bytes.HasSuffix(here, here[:len(here)-n]) {
					a.heads = append(a.heads, here[len(here)-n:])
				}
			}
		}
		a.possible = a.inside || len(a.heads) > 0 || f.ops[i].class == digits
		f.again = append(f.again, a)
	}
}

func errNoFormat(format string) error {
	return fmt.Errorf("--format %q: want auto, json, otlp, csv, requests, a format string of Envoy, such as '%%START_TIME%% %%REQ(:PATH)%%', or of nginx, such as '$time_local $request_uri'", format)
}

// operatorEnd returns the place of the % that ends an operator; one within brackets does
// not.
func operatorEnd(format string, from int) int {
	inside := false
	for i := from; i < len(format); i++ {
		switch format[i] {
		case '(':
			inside = true
		case ')':
			inside = false
		case '%':
			if !inside {
				return i
			}
		}
	}
	return -1
}

func (f *textFormat) calledIn(name string) string {
	if f.line != nil {
		if to := f.line.calledIn(name); to != "" {
			return to
		}
	}
	if f.hasVariables {
		return f.named.calledIn(name)
	}
	if slices.ContainsFunc(f.ops, func(op operator) bool { return op.name == name }) {
		return name
	}
	return ""
}

func (f *textFormat) fields() (names []string) {
	if f.line != nil {
		names = f.line.fields()
	}
	for _, op := range f.ops {
		names = append(names, op.name)
	}
	return names
}

// use says where values go.
func (f *textFormat) use(l *layout) error {
	f.slots = make([]int, len(f.ops))
	slots := f.named.slots(l, f.line)
	for i, op := range f.ops {
		f.slots[i] = l.slot(op.name)
		if f.hasVariables {
			f.slots[i] = -1
			if slot, wanted := slots[op.name]; wanted {
				f.slots[i] = slot
			}
			continue
		}
		if op.name != fieldTime || op.layout == "" {
			continue
		}
		var err error
		if l.clock, err = newClock(op.layout); err != nil {
			return err
		}
	}
	if f.line != nil {
		return f.line.use(l)
	}
	return nil
}

var (
	errNotTheFormat = errors.New("is not as the format says")
	errOtherFields  = errors.New("names other fields than the first header, so that lines behind it are read wrongly: part the log here")
)

func (f *textFormat) read(line []byte, l *Line, request func() error) error {
	if f.header != nil && line[0] == '#' {
		if bytes.HasPrefix(line, []byte("#Fields:")) && !bytes.Equal(bytes.Join(bytes.Fields(line), []byte(" ")), f.header) {
			return &LineError{0, errOtherFields}
		}
		return errHeader
	}
	if err := f.parse(line, l); err != nil {
		return err
	}
	if f.line == nil {
		return request()
	}
	at := l.starts[len(f.ops)-1]
	l.base = at
	return f.line.read(line[at:], l, request)
}

// parse fills in the values of a line.
func (f *textFormat) parse(line []byte, l *Line) error {
	starts, ends := l.edges(len(f.ops))
	var at int
	only := true
	if f.fenced {
		_, at = f.fencedIn(line, starts, ends)
	} else {
		at, only = f.leftmost(line, starts, ends)
	}
	if at >= 0 {
		return &LineError{l.base + at, errNotTheFormat}
	}
	if !only {
		if err := f.others(line, l); err != nil {
			return err
		}
	}
	for i, slot := range f.slots {
		if slot < 0 {
			continue
		}
		if starts[i] < 0 {
			l.unsure |= 1 << slot
			continue
		}
		if value := line[starts[i]:ends[i]]; !isNone(value) {
			l.set(slot, starts[i], value)
		}
	}
	return nil
}

// leftmost finds each literal as far left as it can be, and reports whether that is the
// only reading. From the right: if the literals after i have one place, i has another only
// to the right of its own, in the value that follows it. Bad is the column of what does not
// fit, -1 if all does.
func (f *textFormat) leftmost(line []byte, starts, ends []int) (bad int, only bool) {
	first, last := f.literals[0], f.literals[len(f.literals)-1]
	if !bytes.HasPrefix(line, first) {
		return 0, false
	}
	at := len(first)
	n := len(f.ops)
	only = true
	for i := range n - 1 {
		from, next := at, f.literals[i+1]
		if f.ops[i].class == object {
			from = at + objectLength(line[at:])
		}
		j := bytes.IndexByte(line[from:], next[0])
		if len(next) > 1 && j >= 0 && !bytes.HasPrefix(line[from+j:], next) {
			j = bytes.Index(line[from:], next)
		}
		if j < 0 {
			return at, false
		}
		end := from + j
		starts[i], ends[i] = at, end
		if f.again[i].possible {
			only = only && f.isOnly(i, line[at:end])
		}
		at = end + len(next)
	}
	end := len(line) - len(last)
	if end < at || !bytes.HasSuffix(line, last) {
		return len(line), false
	}
	starts[n-1], ends[n-1] = at, end
	return -1, only && f.isOnly(n-1, line[at:end])
}

// isOnly reports whether value i does not have the literal before it again.
func (f *textFormat) isOnly(i int, value []byte) bool {
	switch a := &f.again[i]; {
	case f.ops[i].class == digits && f.slots[i] >= 0 && !isNumber(value):
		return false
	case f.ops[i].class == object && len(value) > 1:
		return true
	case a.inside && bytes.Contains(value, f.literals[i]):
		return false
	default:
		for _, head := range a.heads {
			if bytes.HasPrefix(value, head) {
				return false
			}
		}
		return true
	}
}

func isNumber(b []byte) bool {
	if isNone(b) {
		return true
	}
	for _, c := range b {
		if c-'0' > 9 {
			return false
		}
	}
	return true
}

// mostReadings bounds how many places of a literal are looked at. A line with more is
// nobody's honest request.
const mostReadings = 64

// edge is a place that a value may have.
type edge struct{ start, end int }

// others finds all readings of a line. A value that is not the same in all of them has the
// start -1.
func (f *textFormat) others(line []byte, l *Line) error {
	edges := make([][]edge, len(f.ops))
	starts := []int{len(f.literals[0])}
	for i := range edges {
		if edges[i] = f.edges(i, starts, line); len(edges[i]) > mostReadings {
			return &LineError{edges[i][mostReadings].start, errAmbiguous}
		}
		starts = nil
		for _, e := range edges[i] {
			if next := e.end + len(f.literals[i+1]); !slices.Contains(starts, next) {
				starts = append(starts, next)
			}
		}
	}
	// From the right: an edge counts if what follows it does.
	after := []int{len(line)}
	for i, of := range slices.Backward(edges) {
		of = slices.DeleteFunc(of, func(e edge) bool { return !slices.Contains(after, e.end+len(f.literals[i+1])) })
		switch len(of) {
		case 0:
			return &LineError{len(f.literals[0]), errNotTheFormat}
		case 1:
			l.starts[i], l.ends[i] = of[0].start, of[0].end
		default:
			l.starts[i], l.ends[i] = -1, -1
		}
		after = nil
		for _, e := range of {
			after = append(after, e.start)
		}
	}
	return nil
}

// edges returns the places of a value that begins at one of starts, one more than mostReadings
// at most.
func (f *textFormat) edges(i int, starts []int, line []byte) (all []edge) {
	class, next := f.ops[i].class, f.literals[i+1]
	for _, start := range starts {
		for from := start; from <= len(line) && len(all) <= mostReadings; {
			end := from + bytes.Index(line[from:], next)
			if i == len(f.ops)-1 {
				end = len(line) - len(next)
			}
			if end < from {
				break
			}
			from = end + 1
			if f.ops[i].fits(line[start:end]) {
				all = append(all, edge{start, end})
			} else if class == tight || class == digits {
				break // a longer one does not fit either
			}
			if i == len(f.ops)-1 {
				break
			}
		}
	}
	return all
}

// fits reports whether a value can be the operator's.
func (op *operator) fits(value []byte) bool {
	switch op.class {
	case tight:
		return bytes.IndexByte(value, ' ') < 0 && bytes.IndexByte(value, '"') < 0
	case cell:
		return bytes.IndexByte(value, '\t') < 0
	case host:
		return bytes.IndexByte(value, ' ') < 0 && bytes.IndexByte(value, '/') < 0
	case addresses:
		for {
			i := bytes.IndexByte(value, ' ')
			if i < 0 {
				return true
			}
			if i == 0 || value[i-1] != ',' {
				return false
			}
			value = value[i+1:]
		}
	case digits:
		return isNumber(value)
	case escaped:
		return quoteEnd(value) < 0
	case object:
		return isNone(value) || objectLength(value) == len(value)
	default:
		return true
	}
}

// objectLength returns the length of the JSON that b begins with, 0 if it begins with
// none.
func objectLength(b []byte) int {
	if len(b) == 0 || b[0] != '{' {
		return 0
	}
	s := jsonview.Scanner{Bytes: b}
	if s.Skip() != nil {
		return 0
	}
	return s.At
}
