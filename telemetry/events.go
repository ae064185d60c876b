package telemetry

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// MaxEvents is the number of events that are kept.
const MaxEvents = 100

// Event is a line of the log with level info or above.
type Event struct {
	// Time is when it was logged last, and Count how often it was logged in a row.
	Time  time.Time `json:"time"`
	Count int       `json:"count"`
	// Level is info, warning or error.
	Level string `json:"level"`
	// Code is the code of the condition that the line is about, or several codes separated by
	// commas.
	Code string `json:"code,omitempty"`
	// Ends reports whether these conditions ended with the line.
	Ends bool `json:"ends,omitempty"`
	// Text is the message, Fields are its attributes. Lines are the errors of a condition with
	// several errors.
	Text   string         `json:"text"`
	Fields map[string]any `json:"fields,omitempty"`
	Lines  []string       `json:"lines,omitempty"`
	// Replica is the address of the replica that logged it, if several were queried.
	Replica string `json:"replica,omitempty"`
}

// Bounds on an event. The log contains the complete text.
const (
	// maxLines bounds the lines of an event, and the elements of a field.
	maxLines = 20
	// maxText bounds a text, in bytes.
	maxText = 2 << 10
)

// NoticeMessage is the message of a line about a counter that has reached a share of its limit.
const NoticeMessage = "limit_notice"

// rulePrefix is the prefix of lines about a single rule, of which a file may have thousands.
const rulePrefix = "rules: "

// Events are the last lines of the log. The methods may be called concurrently.
type Events struct {
	conditions *Conditions

	mu   sync.Mutex
	ring [MaxEvents]Event
	next uint64 // number of events
}

func newEvents(c *Conditions) *Events { return &Events{conditions: c} }

// Watch returns a logger whose lines also become events, and start and end conditions. Notices, lines about
// single rules and lines of net/http are left out, since there can be any number of them. Equal
// warnings in a row are one event.
func (e *Events) Watch(logger *zap.Logger) *zap.Logger {
	watched := logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return &eventCore{Core: core, events: e} }))
	e.conditions.setLogger(watched)
	return watched
}

type eventCore struct {
	zapcore.Core

	events *Events
	fields []zapcore.Field
}

// With implements [zapcore.Core].
func (c *eventCore) With(fields []zapcore.Field) zapcore.Core {
	return &eventCore{Core: c.Core.With(fields), events: c.events, fields: slices.Concat(c.fields, fields)}
}

// Enabled implements [zapcore.Core]. Events do not depend on the level of the log.
func (c *eventCore) Enabled(level zapcore.Level) bool {
	return level >= zapcore.InfoLevel || c.Core.Enabled(level)
}

// Check implements [zapcore.Core].
func (c *eventCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write implements [zapcore.Core].
func (c *eventCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if entry.Level >= zapcore.InfoLevel {
		var ends bool
		fields, ends = c.events.conditions.clear(fields)
		c.events.add(entry, slices.Concat(c.fields, fields), ends)
	}
	if !c.Core.Enabled(entry.Level) {
		return nil
	}
	return c.Core.Write(entry, fields)
}

// add adds a log line to the events, and starts its condition. ends reports whether the line ended
// conditions.
func (e *Events) add(entry zapcore.Entry, fields []zapcore.Field, ends bool) {
	if entry.Message == NoticeMessage || strings.HasPrefix(entry.Message, "http: ") ||
		strings.HasPrefix(entry.Message, rulePrefix) {
		return
	}
	event := Event{
		Time: entry.Time.UTC(), Level: levelName(entry.Level), Text: cut(entry.Message), Count: 1, Ends: ends,
	}
	var raises *transition
	attributes := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		switch t, ok := f.Interface.(*transition); {
		case ok && t.act == actDetail:
			return // a line of the event that raises the condition
		case ok:
			raises = t
		case f.Key == conditionKey:
			event.Code = f.String
		default:
			f.AddTo(attributes)
		}
	}
	if len(attributes.Fields) > 0 {
		event.Fields = attributes.Fields
		for name, value := range event.Fields {
			event.Fields[name] = bounded(value)
		}
	}
	if raises != nil {
		event.Code = string(raises.codes[0])
		event.Lines = boundedLines(raises.lines)
		e.conditions.raise(raises, &event)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addLocked(event)
}

// boundedLines returns the first lines of an event.
func boundedLines(lines []string) (first []string) {
	for _, line := range lines[:min(len(lines), maxLines)] {
		first = append(first, cut(line))
	}
	return first
}

// bounded returns the value of a field, truncated for an event.
func bounded(value any) any {
	switch v := value.(type) {
	case time.Duration:
		return v.String()
	case string:
		return cut(v)
	case []any:
		first := make([]any, 0, maxLines+1)
		for _, element := range v[:min(len(v), maxLines)] {
			first = append(first, bounded(element))
		}
		if more := len(v) - len(first); more > 0 {
			first = append(first, fmt.Sprintf("and %d more", more))
		}
		return first
	default:
		return v
	}
}

// cut returns text, truncated to maxText bytes with an ellipsis.
func cut(text string) string {
	const mark = "…"
	if len(text) <= maxText {
		return text
	}
	end := maxText - len(mark)
	for n := 1; n < utf8.UTFMax && !utf8.RuneStart(text[end]); n++ { // text may be invalid UTF-8
		end--
	}
	return text[:end] + mark
}

func (e *Events) addLocked(event Event) {
	if e.next > 0 {
		last := &e.ring[(e.next-1)%MaxEvents]
		if last.Text == event.Text && last.Level == event.Level &&
			(event.Level == "warning" || reflect.DeepEqual(last.Fields, event.Fields)) {
			event.Count += last.Count
			*last = event
			return
		}
	}
	e.ring[e.next%MaxEvents] = event
	e.next++
}

// Last returns the events, the newest first.
func (e *Events) Last() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(e.next, MaxEvents)
	all := make([]Event, 0, n)
	for i := range n {
		all = append(all, e.ring[(e.next-1-i)%MaxEvents])
	}
	return all
}

// FieldsText formats the fields of an event for people. For a load that changed rules it lists the
// changes.
func FieldsText(fields map[string]any) string {
	var b strings.Builder
	if changed, ok := fields["changed"].([]any); ok && len(changed) > 0 {
		for i := range changed {
			before := ";"
			if i == 0 {
				before = ":"
			}
			fmt.Fprintf(&b, "%s %v", before, changed[i])
		}
		if n, err := strconv.Atoi(fmt.Sprint(fields["changes"])); err == nil && n > len(changed) {
			fmt.Fprintf(&b, "; and %d more", n-len(changed))
		}
		return b.String()
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(&b, " %s=%v", name, fields[name])
	}
	return b.String()
}
