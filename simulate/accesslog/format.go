package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Format is how the lines of logs are read, the same for all goroutines.
type Format struct {
	lines  lineFormat
	layout *layout
}

// lineFormat reads lines of one kind.
type lineFormat interface {
	about() kind
	// calledIn returns what a field is called in the log, "" if lines lack it, and fields
	// lists those that they have.
	calledIn(name string) string
	fields() []string
	// use tells the format which fields are wanted.
	use(l *layout) error
	// read fills in the values of each request that a line has, and calls request with it.
	// It returns errHeader of a line that is to have none.
	read(line []byte, l *Line, request func() error) error
}

// kind is what lines of one kind have in common.
type kind struct {
	// name is for people, and timeHint tells them how to say which field is the time.
	name, timeHint string
	// longest is the longest line, in bytes.
	longest int
}

// fieldHint tells how to say which field is the time, where fields have names.
const fieldHint = "--format 'json time=FIELD'"

var errHeader = errors.New("is the header") // of another log

func newFormat(lines lineFormat) *Format {
	return &Format{lines: lines, layout: newLayout()}
}

// Has reports whether lines have a field.
func (f *Format) Has(name string) bool { return f.lines.calledIn(name) != "" }

// Fields returns the fields that lines have, as far as is known.
func (f *Format) Fields() []string { return f.lines.fields() }

// DurationUnit returns the unit of [FieldDuration]: milliseconds, unless the log is of a server that
// is known to have another.
func (f *Format) DurationUnit() time.Duration {
	called := f.lines.calledIn(FieldDuration)
	if called == FieldDuration && f.lines.calledIn(":path") == caddyPath {
		return time.Second
	}
	return cmp.Or(durationUnits[called], time.Millisecond)
}

// FieldList writes the fields that lines have for people, of many the first.
func (f *Format) FieldList() string { return list(f.Fields()) }

// Want returns the slot in which lines have the value of a field, -1 if they lack it.
func (f *Format) Want(name string) int {
	called := f.lines.calledIn(name)
	if called == "" {
		return -1
	}
	l := f.layout
	if cut := requestParts[name]; cut != nil && called == requestLine {
		of := f.Want(requestLine)
		name = requestLine + " " + name // which no log calls anything
		slot := l.slot(name)
		if slot < 0 {
			slot = len(l.names)
			l.names, l.parts = append(l.names, name), append(l.parts, requestPart{slot, of, cut})
		}
		return slot
	}
	for slot, other := range l.names { // a field may have two names
		if f.lines.calledIn(other) == called {
			return slot
		}
	}
	l.names = append(l.names, name)
	return len(l.names) - 1
}

// Settle makes the format ready for readers. Nothing may be wanted after it.
func (f *Format) Settle() error {
	if len(f.layout.names) > mostSlots {
		return fmt.Errorf("%d fields are wanted: at most %d can be", len(f.layout.names), mostSlots)
	}
	return f.lines.use(f.layout)
}

// fitting counts the lines that have a format.
func fitting(f lineFormat, sample [][]byte) int {
	l := newLayout()
	if f.use(l) != nil {
		return 0
	}
	v := newLine(l)
	n := 0
	timed := func() error { return v.readTime(l.clock) }
	for _, line := range sample {
		v.clear()
		if f.read(line, v, timed) == nil {
			n++
		}
	}
	return n
}
