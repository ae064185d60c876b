package simulate

import (
	"fmt"
	"slices"
)

// layout says which fields are wanted and where their values go.
type layout struct {
	names []string
	// clock reads the time.
	clock func([]byte) (int64, error)
}

// The slots that every layout has.
const (
	slotTime = iota
	slotStatus
	slotFlags
	firstSlot
)

func newLayout() *layout {
	return &layout{names: []string{fieldTime, fieldStatus, fieldFlags}, clock: parseInstant}
}

// want returns the slot of a field.
func (l *layout) want(name string) int {
	if i := slices.Index(l.names, name); i >= 0 {
		return i
	}
	l.names = append(l.names, name)
	return len(l.names) - 1
}

// slot returns where a field goes, -1 if nobody wants it.
func (l *layout) slot(name string) int { return slices.Index(l.names, name) }

// values are those of one line, by slot, as views of the line or of scratch.
type values struct {
	// of is nil for an absent value.
	of [][]byte
	// columns is where a value stands, from 0.
	columns []int
	// unsure has a bit for each slot whose value is not certain.
	unsure  uint64
	scratch []byte
	// made and filtered are for expressions.
	made     []byte
	filtered [2][]byte
	// order is of JSON keys.
	order keyOrder
	// starts and ends are for text formats.
	starts, ends []int
}

func newValues(l *layout) *values {
	return &values{of: make([][]byte, len(l.names)), columns: make([]int, len(l.names))}
}

// mostSlots is how many fields can be wanted.
const mostSlots = 64

func (v *values) clear() {
	clear(v.of)
	v.unsure = 0
	v.scratch = v.scratch[:0]
}

func (v *values) set(slot int, value []byte) { v.of[slot] = value }

func (v *values) uncertain(slot int) { v.unsure |= 1 << slot }

func (v *values) isUnsure(slot int) bool { return v.unsure&(1<<slot) != 0 }

// edges returns room for n starts and ends.
func (v *values) edges(n int) (starts, ends []int) {
	if len(v.starts) != n {
		v.starts, v.ends = make([]int, n), make([]int, n)
	}
	return v.starts, v.ends
}

// lineError is why a line cannot be read.
type lineError struct {
	// column counts from 0, in bytes.
	column int
	why    error
}

func (e *lineError) Error() string { return fmt.Sprintf("column %d: %v", e.column+1, e.why) }

func (e *lineError) Unwrap() error { return e.why }
