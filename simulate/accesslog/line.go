package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// layout maps the selected fields to slots.
type layout struct {
	names      []string
	timeFormat *timeFormat
	// derived are the fields that are parts of another field.
	derived []derivedField
	// requestSlots are the slots of the method and the path, or of the fields that contain them. It
	// is empty if lines have neither.
	requestSlots []int
}

// derivedField is a field extracted from another one.
type derivedField struct {
	slot, source int
	extract      func(line []byte) []byte
}

// Slots of every layout.
const (
	slotTime = iota
	slotStatus
	slotFlags
	firstSlot
)

func newLayout() *layout {
	return &layout{names: []string{fieldTime, fieldStatus, fieldFlags}, timeFormat: anyTimeFormat}
}

// slot returns the slot of a field, or -1 if it is not selected.
func (l *layout) slot(name string) int { return slices.Index(l.names, name) }

// Line is a parsed request. Its values are views of the line or of Scratch, which the next line
// overwrites.
type Line struct {
	// At is the time of the request in nanoseconds since 1970.
	At int64
	// Scratch stores values that differ from their text in the line, such as unescaped ones.
	Scratch []byte

	// values are by slot; nil if absent.
	values [][]byte
	// columns are the positions of the values in the line, from 0.
	columns []int
	// ambiguous has a bit for each slot with an ambiguous value.
	ambiguous uint64
	// expanded and filtered are buffers for expressions.
	expanded []byte
	filtered [2][]byte
	keys     keyCache
	// baseColumn is the column of the line after a prefix.
	baseColumn int
	lastSecond parsedSecond
	// starts and ends are the positions of values in text formats.
	starts, ends []int
}

func newLine(l *layout) *Line {
	return &Line{values: make([][]byte, len(l.names)), columns: make([]int, len(l.names))}
}

// maxSlots is the number of bits of Line.ambiguous.
const maxSlots = 64

func (l *Line) clear() {
	clear(l.values)
	l.ambiguous = 0
	l.Scratch = l.Scratch[:0]
	l.baseColumn = 0
	l.keys.next = 0
}

// set sets a value and its column in the line.
func (l *Line) set(slot, column int, value []byte) {
	l.values[slot] = value
	l.columns[slot] = l.baseColumn + column
}

// derive sets the values of derived fields.
func (l *Line) derive(parts []derivedField) {
	for _, p := range parts {
		if l.IsAmbiguous(p.source) {
			l.ambiguous |= 1 << p.slot
		} else if value := p.extract(l.values[p.source]); len(value) > 0 {
			l.values[p.slot] = value
			l.columns[p.slot] = l.columns[p.source]
		}
	}
}

// hasRequest reports whether the line is about a request. Servers also log connections and other
// messages, which have neither a method nor a path nor a response status.
func (l *Line) hasRequest(slots []int) bool {
	if status := l.values[slotStatus]; len(slots) == 0 || isStatusCode(status) && string(status) != "0" {
		return true
	}
	return slices.ContainsFunc(slots, func(slot int) bool { return l.values[slot] != nil || l.IsAmbiguous(slot) })
}

// Value returns the value of a slot, or nil if it is absent.
func (l *Line) Value(slot int) []byte {
	if slot < 0 {
		return nil
	}
	return l.values[slot]
}

// IsAmbiguous reports whether the value of a slot differs between the readings of the line. Value
// is then nil.
func (l *Line) IsAmbiguous(slot int) bool { return slot >= 0 && l.ambiguous&(1<<slot) != 0 }

// Column returns the position of a slot's value in the line, from 0, or 0 if it is absent.
func (l *Line) Column(slot int) int {
	if l.Value(slot) == nil {
		return 0
	}
	return l.columns[slot]
}

// Address parses the value of a slot as an address with an optional port. It returns the zero Addr
// if there is none.
func (l *Line) Address(slot int) netip.Addr {
	value := l.Value(slot)
	if value == nil {
		return netip.Addr{}
	}
	a, _ := parseAddress(value)
	return a
}

var (
	errNoTime    = errors.New("no time")
	errAmbiguous = errors.New("ambiguous: a value contains a separator of the format")
)

// readTime sets l.At.
func (l *Line) readTime(c *timeFormat) (err error) {
	at := l.values[slotTime]
	switch {
	case at == nil && l.IsAmbiguous(slotTime):
		return &LineError{0, errAmbiguous}
	case at == nil:
		return &LineError{0, errNoTime}
	}
	if l.At, err = c.parse(at, &l.lastSecond); err != nil {
		return &LineError{l.columns[slotTime], fmt.Errorf("%q: %w", truncate(at), err)}
	}
	return nil
}

// Recorded is the outcome of a request according to the log.
type Recorded byte

// The recorded outcomes.
const (
	NotRecorded Recorded = iota
	Admitted
	Denied
)

// Recorded returns the recorded outcome of the request. Status 429 and Envoy's rate limit flag are
// denials.
func (l *Line) Recorded() Recorded {
	status := l.values[slotStatus]
	flags := l.values[slotFlags]
	switch {
	case is429(status), hasRateLimitFlag(flags):
		return Denied
	case !isStatusCode(status) && flags == nil:
		return NotRecorded
	default:
		return Admitted
	}
}

// isStatusCode reports whether a status is numeric, not a word such as "ok".
func isStatusCode(status []byte) bool {
	return len(status) > 0 && len(bytes.Trim(status, "-.0123456789")) == 0
}

// is429 reports whether a status is 429, which some programs write as 429.0.
func is429(status []byte) bool {
	rest, ok := bytes.CutPrefix(status, []byte("429"))
	return ok && (len(rest) == 0 || rest[0] == '.' && len(bytes.Trim(rest[1:], "0")) == 0)
}

// hasRateLimitFlag reports whether flags such as RL,UF contain RL or its long name.
func hasRateLimitFlag(flags []byte) bool {
	for len(flags) > 1 {
		var flag []byte
		flag, flags, _ = bytes.Cut(flags, []byte(","))
		if string(flag) == "RL" || string(flag) == "RateLimited" {
			return true
		}
	}
	return false
}

// bounds returns buffers for n starts and ends.
func (l *Line) bounds(n int) (starts, ends []int) {
	if len(l.starts) < n {
		l.starts = make([]int, n)
		l.ends = make([]int, n)
	}
	return l.starts[:n], l.ends[:n]
}

// LineError explains why a line cannot be read.
type LineError struct {
	// Column counts from 0, in bytes.
	Column int
	Err    error
}

// Error formats the column, counted from 1, and the cause.
func (e *LineError) Error() string { return fmt.Sprintf("column %d: %v", e.Column+1, e.Err) }

// Unwrap returns Err.
func (e *LineError) Unwrap() error { return e.Err }

func truncate(b []byte) string {
	const maxLength = 40
	if len(b) <= maxLength {
		return string(b)
	}
	return string(b[:maxLength]) + "..."
}

// isAbsent reports whether a value is empty or -, which Envoy writes for an absent one.
func isAbsent(value []byte) bool { return len(value) == 0 || len(value) == 1 && value[0] == '-' }
