package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// layout says which fields are wanted and where their values go.
type layout struct {
	names      []string
	timeFormat *timeFormat
	// derived are the values that are parts of others.
	derived []derivedField
	// requestSlots has the slots of the method and the path, or of what they are parts of. It is empty if
	// lines have neither.
	requestSlots []int
}

// derivedField is a value that is cut out of another.
type derivedField struct {
	slot, source int
	extract      func(line []byte) []byte
}

// The slots that every layout has.
const (
	slotTime = iota
	slotStatus
	slotFlags
	firstSlot
)

func newLayout() *layout {
	return &layout{names: []string{fieldTime, fieldStatus, fieldFlags}, timeFormat: anyTimeFormat}
}

// slot returns where a field goes, -1 if nobody wants it.
func (l *layout) slot(name string) int { return slices.Index(l.names, name) }

// Line is what the line of a request has: its values by slot, as views of the line or of
// Scratch, which the next line overwrites.
type Line struct {
	// At is the time of the request in nanoseconds since 1970.
	At int64
	// Scratch is room for values that do not stand in the line as they are.
	Scratch []byte

	// values is nil for an absent value.
	values [][]byte
	// columns is where a value stands, from 0.
	columns []int
	// ambiguous has a bit for each slot whose value is not certain.
	ambiguous uint64
	// expanded and filtered are for expressions.
	expanded []byte
	filtered [2][]byte
	// keys is of JSON keys.
	keys keyCache
	// embedded is the line within a line of JSON, and textAt where it stands.
	embedded   []byte
	embeddedAt int
	// baseColumn is where a line within a line begins.
	baseColumn int
	// w3c says how the lines below the last #Fields: are read.
	w3c *w3cColumns
	// w3cDate is that of the last #Date:, nil without one.
	w3cDate *w3cDay
	// lastSecond is the last one.
	lastSecond parsedSecond
	// starts and ends are for text formats.
	starts, ends []int
}

func newLine(l *layout) *Line {
	return &Line{values: make([][]byte, len(l.names)), columns: make([]int, len(l.names))}
}

// maxSlots is how many fields can be wanted.
const maxSlots = 64

func (l *Line) clear() {
	clear(l.values)
	l.ambiguous = 0
	l.Scratch = l.Scratch[:0]
	l.baseColumn, l.keys.next = 0, 0
}

// set sets a value that stands at a column.
func (l *Line) set(slot, column int, value []byte) {
	l.values[slot], l.columns[slot] = value, l.baseColumn+column
}

// derive fills in the values that are parts of others.
func (l *Line) derive(parts []derivedField) {
	for _, p := range parts {
		if l.IsAmbiguous(p.source) {
			l.ambiguous |= 1 << p.slot
		} else if value := p.extract(l.values[p.source]); len(value) > 0 {
			l.values[p.slot], l.columns[p.slot] = value, l.columns[p.source]
		}
	}
}

// hasRequest reports whether the line is about a request. Servers write lines about connections, and
// other messages, into the same log: those have neither method nor path nor the status of a response.
func (l *Line) hasRequest(slots []int) bool {
	if status := l.values[slotStatus]; len(slots) == 0 || isStatusCode(status) && string(status) != "0" {
		return true
	}
	return slices.ContainsFunc(slots, func(slot int) bool { return l.values[slot] != nil || l.IsAmbiguous(slot) })
}

// Value returns the value of a slot, nil if it is absent.
func (l *Line) Value(slot int) []byte {
	if slot < 0 {
		return nil
	}
	return l.values[slot]
}

// IsAmbiguous reports whether the line can be read in several ways, in which the value of a slot
// differs. Value is nil then.
func (l *Line) IsAmbiguous(slot int) bool { return slot >= 0 && l.ambiguous&(1<<slot) != 0 }

// Column returns where the value of a slot stands in the line, from 0; 0 if it is absent.
func (l *Line) Column(slot int) int {
	if l.Value(slot) == nil {
		return 0
	}
	return l.columns[slot]
}

// Address returns the address of a slot, which may have a port; the zero Addr if there is
// none.
func (l *Line) Address(slot int) netip.Addr {
	value := l.Value(slot)
	if value == nil {
		return netip.Addr{}
	}
	a, _ := parseAddress(value)
	return a
}

var (
	errNoTime    = errors.New("has no time")
	errAmbiguous = errors.New("can be read in several ways, since values have what stands between them")
)

// readTime reads the time of the request.
func (l *Line) readTime(c *timeFormat) (err error) {
	at := l.values[slotTime]
	switch {
	case at == nil && l.IsAmbiguous(slotTime):
		return &LineError{0, errAmbiguous}
	case at == nil:
		return &LineError{0, errNoTime}
	}
	if l.At, err = c.parse(at, &l.lastSecond); err != nil {
		return &LineError{l.columns[slotTime], fmt.Errorf("%q %w", truncate(at), err)}
	}
	return nil
}

// Recorded is what a log says became of a request.
type Recorded byte

// What a log says became of a request: nothing, or what the service decided.
const (
	NotRecorded Recorded = iota
	Admitted
	Denied
)

// Recorded returns what the line says became of the request. Envoy's flag for what a rate
// limit denied, or the status for that, is a denial.
func (l *Line) Recorded() Recorded {
	status, flags := l.values[slotStatus], l.values[slotFlags]
	switch {
	case is429(status), hasRateLimitFlag(flags):
		return Denied
	case !isStatusCode(status) && flags == nil:
		return NotRecorded
	default:
		return Admitted
	}
}

// isStatusCode reports whether a status is a number, and not a word such as "ok".
func isStatusCode(status []byte) bool {
	return len(status) > 0 && len(bytes.Trim(status, "-.0123456789")) == 0
}

// is429 reports whether a status is 429, which some programs write as 429.0.
func is429(status []byte) bool {
	rest, ok := bytes.CutPrefix(status, []byte("429"))
	return ok && (len(rest) == 0 || rest[0] == '.' && len(bytes.Trim(rest[1:], "0")) == 0)
}

// hasRateLimitFlag reports whether flags such as RL,UF have RL, or its long name.
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

// bounds returns room for n starts and ends.
func (l *Line) bounds(n int) (starts, ends []int) {
	if len(l.starts) < n {
		l.starts, l.ends = make([]int, n), make([]int, n)
	}
	return l.starts[:n], l.ends[:n]
}

// LineError is why a line cannot be read.
type LineError struct {
	// Column counts from 0, in bytes.
	Column int
	Err    error
}

// Error says the column, from 1, and why.
func (e *LineError) Error() string { return fmt.Sprintf("column %d: %v", e.Column+1, e.Err) }

// Unwrap returns Why.
func (e *LineError) Unwrap() error { return e.Err }

// truncate cuts what is shown of a line.
func truncate(b []byte) string {
	const most = 40
	if len(b) <= most {
		return string(b)
	}
	return string(b[:most]) + "..."
}

// isAbsent reports whether Envoy wrote that there is no value.
func isAbsent(value []byte) bool { return len(value) == 0 || len(value) == 1 && value[0] == '-' }
