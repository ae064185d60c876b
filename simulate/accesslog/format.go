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
	// read fills in the values of each request in a line, and calls request with nil, or with
	// the reason why one of several requests cannot be read. It returns the error of request,
	// an error of the line itself, or errHeader if the line is not meant to have requests.
	read(line []byte, l *Line, request func(error) error) error
}

// kind is what lines of one kind have in common.
type kind struct {
	// name is for people. timeHint and statusHint tell them how to name the field of the time and
	// that of the status.
	name, timeHint, statusHint string
	// longest is the longest line, in bytes.
	longest int
}

// fieldKind is the kind of a format whose fields have names. Format is how --format calls it.
func fieldKind(format, name string, longest int) kind {
	hint := func(field string) string { return fmt.Sprintf("--format '%s %s=FIELD'", format, field) }
	return kind{name, hint(fieldTime), hint(fieldStatus), longest}
}

var (
	errHeader    = errors.New("is the header") // of another log
	errNoRequest = errors.New("has no request")
)

func newFormat(lines lineFormat) *Format {
	return &Format{lines: lines, layout: newLayout()}
}

// Has reports whether lines have a field.
func (f *Format) Has(name string) bool { return f.lines.calledIn(name) != "" }

// StatusHint explains how to name the field that has the status of a request. It is empty if
// that is known.
func (f *Format) StatusHint() string {
	if f.Has(fieldStatus) || f.Has(fieldFlags) {
		return ""
	}
	return f.lines.about().statusHint
}

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
	if cut := partsOf(called)[name]; cut != nil {
		of := f.Want(called)
		name = called + " " + name // which no log calls anything
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
	for _, name := range []string{":method", ":path"} {
		if called := f.lines.calledIn(name); called != "" {
			f.layout.request = append(f.layout.request, f.Want(called))
		}
	}
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
	timed := func(err error) error {
		if err == nil {
			err = v.readTime(l.clock)
		}
		return err
	}
	for _, line := range sample {
		v.clear()
		if f.read(line, v, timed) == nil {
			n++
		}
	}
	return n
}
