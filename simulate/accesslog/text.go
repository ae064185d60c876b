package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/simulate/jsonview"
)

// A text format is literals and operators in turn. Envoy escapes nothing in it: a user
// agent with quotes stands as it is. So a line may be read in more than one way. Each
// literal is first looked for from the left, which gives the leftmost place that it can
// have in any reading. It is the only one if the value before the next literal does not
// have it again; only then are other readings looked for, and a value that is not the same
// in all of them is not certain.
type textFormat struct {
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

// newTextFormat reads a format string.
func newTextFormat(format string) (*textFormat, error) {
	format = strings.TrimSuffix(strings.TrimSuffix(format, "\n"), `\n`)
	f := &textFormat{}
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
			return nil, fmt.Errorf("--format: %q has a %% without an end", format[i:min(len(format), i+20)])
		}
		op, err := newOperator(format[i+1 : end])
		if err != nil {
			return nil, fmt.Errorf("--format: %w", err)
		}
		if len(f.ops) > 0 && len(literal) == 0 {
			return nil, fmt.Errorf("--format: nothing stands between %s and %s, so that a line does not say where one ends", f.ops[len(f.ops)-1].name, op.name)
		}
		f.literals = append(f.literals, literal)
		f.ops = append(f.ops, op)
		literal = nil
		i = end
	}
	if len(f.ops) == 0 {
		return nil, fmt.Errorf("--format %q: want auto, json, otlp, csv, requests or a format string of Envoy, such as '%%START_TIME%% %%REQ(:PATH)%%'", format)
	}
	f.literals = append(f.literals, literal)
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
	return f, nil
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
	if slices.Contains(f.fields(), name) {
		return name
	}
	return ""
}

func (f *textFormat) fields() (names []string) {
	for _, op := range f.ops {
		names = append(names, op.name)
	}
	return names
}

// use says where values go.
func (f *textFormat) use(l *layout) error {
	f.slots = make([]int, len(f.ops))
	for i, op := range f.ops {
		f.slots[i] = l.slot(op.name)
		if op.name != fieldTime || op.layout == "" {
			continue
		}
		var err error
		if l.clock, err = newClock(op.layout); err != nil {
			return err
		}
	}
	return nil
}

var (
	errNotTheFormat = errors.New("is not as the format says")
	errAmbiguous    = errors.New("can be read in several ways, since values have what stands between them")
)

func (f *textFormat) read(line []byte, l *Line, request func() error) error {
	if err := f.parse(line, l); err != nil {
		return err
	}
	return request()
}

// parse fills in the values of a line.
func (f *textFormat) parse(line []byte, l *Line) error {
	starts, ends := l.edges(len(f.ops))
	at, only := f.leftmost(line, starts, ends)
	if at >= 0 {
		return &LineError{at, errNotTheFormat}
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

// isNone reports whether Envoy wrote that there is no value.
func isNone(value []byte) bool { return len(value) == 0 || len(value) == 1 && value[0] == '-' }

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

// others finds all readings of a line. A value that is not the same in all of them has the
// start -1.
func (f *textFormat) others(line []byte, l *Line) error {
	n := len(f.ops)
	// reach[i] are the starts of value i that the values before it allow.
	reach := make([][]int, n)
	reach[0] = []int{len(f.literals[0])}
	type edge struct{ start, end int }
	edges := make([][]edge, n)
	last := len(line) - len(f.literals[n])
	for i := range n {
		seen := map[int]bool{}
		for _, start := range reach[i] {
			if i == n-1 {
				if start <= last && f.ops[i].fits(line[start:last]) {
					edges[i] = append(edges[i], edge{start, last})
				}
				continue
			}
			next := f.literals[i+1]
			for from := start; from <= len(line); {
				j := bytes.Index(line[from:], next)
				if j < 0 {
					break
				}
				end := from + j
				from = end + 1
				if !f.ops[i].fits(line[start:end]) {
					if f.ops[i].class == tight || f.ops[i].class == digits {
						break // a longer one does not fit either
					}
					continue
				}
				if len(edges[i]) == mostReadings {
					return &LineError{start, errAmbiguous}
				}
				edges[i] = append(edges[i], edge{start, end})
				if to := end + len(next); !seen[to] {
					seen[to] = true
					reach[i+1] = append(reach[i+1], to)
				}
			}
		}
	}
	// From the right: an edge counts if what follows it does.
	good := map[int]bool{}
	for i := n - 1; i >= 0; i-- {
		before := map[int]bool{}
		found := 0
		l.starts[i], l.ends[i] = -1, -1
		for _, e := range edges[i] {
			if i < n-1 && !good[e.end+len(f.literals[i+1])] {
				continue
			}
			found++
			before[e.start] = true
			l.starts[i], l.ends[i] = e.start, e.end
		}
		switch {
		case found == 0:
			return &LineError{reach[0][0], errNotTheFormat}
		case found > 1:
			l.starts[i], l.ends[i] = -1, -1
		}
		good = before
	}
	return nil
}

// fits reports whether a value can be the operator's.
func (op *operator) fits(value []byte) bool {
	switch op.class {
	case tight:
		return bytes.IndexByte(value, ' ') < 0 && bytes.IndexByte(value, '"') < 0
	case digits:
		return isNumber(value)
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
