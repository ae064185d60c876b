package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Format describes how to read the lines of logs. All goroutines share it.
type Format struct {
	parser lineParser
	layout *layout
}

// lineParser parses the lines of one kind of log.
type lineParser interface {
	info() formatInfo
	// logName returns the log's name of a field, or "" if lines lack it. fields lists the fields of
	// lines.
	logName(name string) string
	fields() []string
	// bind sets the slots of the selected fields.
	bind(l *layout) error
	// read sets the values of a line.
	read(line []byte, l *Line) error
}

// formatInfo describes a kind of log.
type formatInfo struct {
	// name is the format's name in messages. timeHint explains how to specify the field of the time.
	name, timeHint string
}

var errNoRequest = errors.New("has no request")

func newFormat(lines lineParser) *Format {
	return &Format{parser: lines, layout: newLayout()}
}

// Has reports whether lines have a field.
func (f *Format) Has(name string) bool { return f.parser.logName(name) != "" }

// Fields returns the known fields of lines.
func (f *Format) Fields() []string { return f.parser.fields() }

// DurationUnit returns the unit of [FieldDuration]: milliseconds, or seconds in logs of nginx.
func (f *Format) DurationUnit() time.Duration {
	return cmp.Or(durationUnits[f.parser.logName(FieldDuration)], time.Millisecond)
}

// FieldList formats the first fields of lines for messages.
func (f *Format) FieldList() string { return joinNames(f.Fields()) }

// Select selects a field and returns its slot in lines, or -1 if lines lack it.
func (f *Format) Select(name string) int {
	logName := f.parser.logName(name)
	if logName == "" {
		return -1
	}
	l := f.layout
	if extract := requestParts[name]; extract != nil && logName == requestLine {
		source := f.Select(logName)
		name = logName + " " + name // not a name in any log
		slot := l.slot(name)
		if slot < 0 {
			slot = len(l.names)
			l.names = append(l.names, name)
			l.derived = append(l.derived, derivedField{slot, source, extract})
		}
		return slot
	}
	for slot, other := range l.names { // the field may be selected under two names
		if f.parser.logName(other) == logName {
			return slot
		}
	}
	l.names = append(l.names, name)
	return len(l.names) - 1
}

// Prepare completes the format for readers. No field may be selected after it.
func (f *Format) Prepare() error {
	for _, name := range []string{":method", ":path"} {
		if logName := f.parser.logName(name); logName != "" {
			f.layout.requestSlots = append(f.layout.requestSlots, f.Select(logName))
		}
	}
	if len(f.layout.names) > maxSlots {
		return fmt.Errorf("%d fields are selected; the maximum is %d", len(f.layout.names), maxSlots)
	}
	return f.parser.bind(f.layout)
}

// countMatching returns the number of lines that f can read.
func countMatching(f lineParser, sample [][]byte) int {
	l := newLayout()
	if f.bind(l) != nil {
		return 0
	}
	v := newLine(l)
	n := 0
	for _, line := range sample {
		v.clear()
		if f.read(line, v) == nil && v.readTime(l.timeFormat) == nil {
			n++
		}
	}
	return n
}
