package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// textFormat alternates literals and operators.
//
// Envoy escapes nothing in its format strings: a user agent with quotes is written unchanged, so a
// line may have several readings. The parser first searches each literal from the left, which finds
// its leftmost position in any reading. That position is the only one unless the value before the
// next literal contains the literal again. Only then does it search for the other readings; a value
// that differs between them is ambiguous.
//
// Other servers escape quoted values. Their formats, which have variables like nginx's, are parsed
// by scanDelimited.
type textFormat struct {
	// server is the server that writes the format, if known.
	server string
	// namedFields are the variables, if hasVariables is set. delimited is true if no line can have
	// several readings.
	namedFields
	hasVariables, delimited bool
	// inner parses the value of the last variable, which is a line of another format, or nil.
	inner lineParser
	// literals has one more element than ops, which they surround.
	literals [][]byte
	ops      []operator
	// repeats is parallel to ops and describes how the preceding literal can occur again in a
	// value.
	repeats []repetition
	// slots are those of the values, or -1 if not selected.
	slots []int
}

// repetition describes where a literal can occur again before the next one.
type repetition struct {
	// overlaps are the prefixes of a value with which the literal occurs again within itself, such
	// as `" "` in `" " "`.
	overlaps [][]byte
	// inValue reports whether the value can contain the literal. It cannot if the literal contains
	// the next one, which ends the value.
	inValue bool
	// possible reports whether isUnambiguous must check the value.
	possible bool
}

func (f *textFormat) info() formatInfo {
	return formatInfo{cmp.Or(f.server, "text"), "%START_TIME%, $time_local, $time_iso8601 or $msec in --format"}
}

// newTextFormat parses a format string of Envoy, or one with variables like nginx's.
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
			return nil, fmt.Errorf("--format: no text between %s and %s, so a line does not show where the first ends",
				f.ops[i-1].name, f.ops[i].name)
		}
	}
	f.findRepetitions()
	return f, nil
}

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
			return fmt.Errorf("--format: unterminated %% operator at %q", format[i:min(len(format), i+20)])
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
	return fmt.Errorf("unknown --format %q; want auto, json, requests, a format string of Envoy, such as '%%START_TIME%% %%REQ(:PATH)%%', or of nginx, such as '$time_local $request_uri'", format)
}

// operatorEnd returns the index of the % that ends an operator, ignoring those in parentheses, or
// -1.
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

func (f *textFormat) bind(l *layout) error {
	f.slots = make([]int, len(f.ops))
	slots := f.slotsByName(l, f.inner)
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

var errFormatMismatch = errors.New("line does not match the format")

func (f *textFormat) read(line []byte, l *Line) error {
	if err := f.parse(line, l); err != nil || f.inner == nil {
		return err
	}
	at := l.starts[len(f.ops)-1]
	l.baseColumn = at
	return f.inner.read(line[at:], l)
}

// parse sets the values of a line.
func (f *textFormat) parse(line []byte, l *Line) error {
	starts, ends := l.bounds(len(f.ops))
	var at int
	only := true
	if f.delimited {
		at = f.scanDelimited(line, starts, ends)
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
