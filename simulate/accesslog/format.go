package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Format is how the lines of logs are read, the same for all goroutines.
type Format struct {
	parser lineParser
	layout *layout
}

// lineParser reads lines of one kind.
type lineParser interface {
	info() formatInfo
	// logName returns what a field is called in the log, "" if lines lack it, and fields
	// lists those that they have.
	logName(name string) string
	fields() []string
	// bind tells the format which fields are wanted.
	bind(l *layout) error
	// read fills in the values of each request in a line, and calls request with nil, or with
	// the reason why one of several requests cannot be read. It returns the error of request,
	// an error of the line itself, or errHeader if the line is not meant to have requests.
	read(line []byte, l *Line, request func(error) error) error
}

// formatInfo is what lines of one kind have in common.
type formatInfo struct {
	// name is for people. timeHint and statusHint tell them how to name the field of the time and
	// that of the status.
	name, timeHint, statusHint string
	// maxLine is the longest line, in bytes.
	maxLine int
}

// fieldFormatInfo is the kind of a format whose fields have names. Format is how --format calls it.
func fieldFormatInfo(format, name string, longest int) formatInfo {
	hint := func(field string) string { return fmt.Sprintf("--format '%s %s=FIELD'", format, field) }
	return formatInfo{name, hint(fieldTime), hint(fieldStatus), longest}
}

var (
	errHeader    = errors.New("is the header") // of another log
	errNoRequest = errors.New("has no request")
)

func newFormat(lines lineParser) *Format {
	return &Format{parser: lines, layout: newLayout()}
}

// Has reports whether lines have a field.
func (f *Format) Has(name string) bool { return f.parser.logName(name) != "" }

// StatusHint explains how to name the field that has the status of a request. It is empty if
// that is known.
func (f *Format) StatusHint() string {
	if f.Has(fieldStatus) || f.Has(fieldFlags) {
		return ""
	}
	return f.parser.info().statusHint
}

// Fields returns the fields that lines have, as far as is known.
func (f *Format) Fields() []string { return f.parser.fields() }

// DurationUnit returns the unit of [FieldDuration]: milliseconds, unless the log is of a server that
// is known to have another.
func (f *Format) DurationUnit() time.Duration {
	called := f.parser.logName(FieldDuration)
	if called == FieldDuration && f.parser.logName(":path") == caddyPath {
		return time.Second
	}
	return cmp.Or(durationUnits[called], time.Millisecond)
}

// FieldList writes the fields that lines have for people, of many the first.
func (f *Format) FieldList() string { return joinNames(f.Fields()) }

// Select returns the slot in which lines have the value of a field, -1 if they lack it.
func (f *Format) Select(name string) int {
	called := f.parser.logName(name)
	if called == "" {
		return -1
	}
	l := f.layout
	if cut := partExtractors(called)[name]; cut != nil {
		of := f.Select(called)
		name = called + " " + name // which no log calls anything
		slot := l.slot(name)
		if slot < 0 {
			slot = len(l.names)
			l.names, l.derived = append(l.names, name), append(l.derived, derivedField{slot, of, cut})
		}
		return slot
	}
	for slot, other := range l.names { // a field may have two names
		if f.parser.logName(other) == called {
			return slot
		}
	}
	l.names = append(l.names, name)
	return len(l.names) - 1
}

// Prepare makes the format ready for readers. Nothing may be wanted after it.
func (f *Format) Prepare() error {
	for _, name := range []string{":method", ":path"} {
		if called := f.parser.logName(name); called != "" {
			f.layout.requestSlots = append(f.layout.requestSlots, f.Select(called))
		}
	}
	if len(f.layout.names) > maxSlots {
		return fmt.Errorf("%d fields are wanted: at most %d can be", len(f.layout.names), maxSlots)
	}
	return f.parser.bind(f.layout)
}

// countMatching counts the lines that have a format.
func countMatching(f lineParser, sample [][]byte) int {
	l := newLayout()
	if f.bind(l) != nil {
		return 0
	}
	v := newLine(l)
	n := 0
	timed := func(err error) error {
		if err == nil {
			err = v.readTime(l.timeFormat)
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
