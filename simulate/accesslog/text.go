package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A text format is literals and operators in turn. Envoy escapes nothing in it: a user
// agent with quotes stands as it is. So a line may be read in more than one way. Each
// literal is first looked for from the left, which gives the leftmost place that it can
// have in any reading. It is the only one if the value before the next literal does not
// have it again; only then are other readings looked for, and a value that is not the same
// in all of them is not certain.
//
// That is for Envoy's format strings. Other servers escape what they put into quotes, and
// their formats, with names of variables as nginx has them, are read as fencedIn
// says.
type textFormat struct {
	// server is who writes the format, as far as is known.
	server string
	// named has the variables, and fenced says that no value can be read in several ways.
	namedFields
	hasVariables, delimited bool
	// noRequest is the request line of lines that have no request, such as those of connections, and
	// requestOp the index of the operator that has it. An empty none is of formats without such lines.
	noRequest    string
	requestIndex int
	// inner reads what the last variable has, a line of another format; nil if it is none.
	inner lineParser
	// literals has one more element than ops: they stand around them.
	literals [][]byte
	ops      []operator
	// repeats is parallel to ops: how the literal before a value can come again in it.
	repeats []repetition
	// slots is where a value goes; -1 for nowhere.
	slots []int
}

// repetition says where a literal can come again before the next one.
type repetition struct {
	// overlaps are what a value begins with if the literal comes again before its own end, as
	// `" "` does in `" " "`.
	overlaps [][]byte
	// inValue says that the value can hold it. One that lacks the next literal holds none
	// that has that in it.
	inValue bool
	// possible says that isOnly is to be asked.
	possible bool
}

func (f *textFormat) info() formatInfo {
	if f.hasVariables {
		return formatInfo{cmp.Or(f.server, "text"), "add $time_local, $time_iso8601 or $msec to --format", "add $status to --format", maxLineBytes}
	}
	return formatInfo{cmp.Or(f.server, "text"), "add %START_TIME% to --format", "add %RESPONSE_CODE% to --format", maxLineBytes}
}

// newTextFormat reads a format string: Envoy's, or one with variables as nginx has them.
func newTextFormat(format string) (*textFormat, error) {
	format = strings.TrimSuffix(strings.TrimSuffix(format, "\n"), `\n`)
	f := &textFormat{}
	var err error
	if f.hasVariables = !strings.Contains(format, "%") && strings.Contains(format, "$"); f.hasVariables {
		f.parseVariables(format)
	} else {
		err = f.parseOperators(format)
	}
	if err != nil {
		return nil, err
	}
	if len(f.ops) == 0 {
		return nil, errUnknownFormat(format)
	}
	for i := 1; i < len(f.ops); i++ {
		if len(f.literals[i]) == 0 {
			return nil, fmt.Errorf("--format: nothing stands between %s and %s, so that a line does not say where one ends", f.ops[i-1].name, f.ops[i].name)
		}
	}
	f.findRepetitions()
	return f, nil
}

// parseOperators reads a format string of Envoy.
func (f *textFormat) parseOperators(format string) error {
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

// findRepetitions finds out how literals can come again.
func (f *textFormat) findRepetitions() {
	for i := range f.ops {
		var a repetition
		if here := f.literals[i]; i > 0 {
			a.inValue = i == len(f.ops)-1 || !bytes.Contains(here, f.literals[i+1])
			for n := 1; n < len(here); n++ {
				if bytes.HasSuffix(here, here[:len(here)-n]) {
					a.overlaps = append(a.overlaps, here[len(here)-n:])
				}
			}
		}
		a.possible = a.inValue || len(a.overlaps) > 0 || f.ops[i].class == integer
		f.repeats = append(f.repeats, a)
	}
}

func errUnknownFormat(format string) error {
	return fmt.Errorf("--format %q: want auto, json, otlp, csv, ltsv, w3c, requests, a format string of Envoy, such as '%%START_TIME%% %%REQ(:PATH)%%', or of nginx, such as '$time_local $request_uri'", format)
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

func (f *textFormat) logName(name string) string {
	if f.inner != nil {
		if to := f.inner.logName(name); to != "" {
			return to
		}
	}
	if f.hasVariables {
		return f.namedFields.logName(name)
	}
	if slices.ContainsFunc(f.ops, func(op operator) bool { return op.name == name }) {
		return name
	}
	return ""
}

func (f *textFormat) fields() (names []string) {
	if f.inner != nil {
		names = f.inner.fields()
	}
	for _, op := range f.ops {
		names = append(names, op.name)
	}
	return names
}

// use says where values go.
func (f *textFormat) bind(l *layout) error {
	f.slots = make([]int, len(f.ops))
	slots := f.namedFields.slotsByName(l, f.inner)
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
		if l.timeFormat, err = newTimeFormat(op.layout); err != nil {
			return err
		}
	}
	if f.inner != nil {
		return f.inner.bind(l)
	}
	return nil
}

var errFormatMismatch = errors.New("is not as the format says")

func (f *textFormat) read(line []byte, l *Line, request func(error) error) error {
	if err := f.parse(line, l); err != nil {
		if isComment(line) {
			return errHeader
		}
		return err
	}
	if f.noRequest != "" {
		starts, ends := l.bounds(len(f.ops))
		if string(line[starts[f.requestIndex]:ends[f.requestIndex]]) == f.noRequest {
			return request(errNoRequest)
		}
	}
	if f.inner == nil {
		return request(nil)
	}
	at := l.starts[len(f.ops)-1]
	l.baseColumn = at
	return f.inner.read(line[at:], l, request)
}

// parse fills in the values of a line.
func (f *textFormat) parse(line []byte, l *Line) error {
	starts, ends := l.bounds(len(f.ops))
	var at int
	only := true
	if f.delimited {
		_, at = f.scanDelimited(line, starts, ends)
	} else {
		at, only = f.scanLeftmost(line, starts, ends)
	}
	if at >= 0 {
		return &LineError{l.baseColumn + at, errFormatMismatch}
	}
	if !only {
		if err := f.findReadings(line, l); err != nil {
			return err
		}
	}
	for i, slot := range f.slots {
		if slot < 0 {
			continue
		}
		if starts[i] < 0 {
			l.ambiguous |= 1 << slot
			continue
		}
		if value := line[starts[i]:ends[i]]; !isAbsent(value) {
			l.set(slot, starts[i], value)
		}
	}
	return nil
}
