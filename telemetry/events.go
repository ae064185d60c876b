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

// MaxEvents is how many of the last events are kept.
const MaxEvents = 100

// Event is a line of the log, from level info on.
type Event struct {
	// Time is when it was logged, last if that was several times in a row. Count is how often.
	Time  time.Time `json:"time"`
	Count int       `json:"count"`
	// Level is info, warning or error.
	Level string `json:"level"`
	// Text is the message, and Fields what stands behind it. Lines are the errors of rules that do not load.
	Text   string         `json:"text"`
	Fields map[string]any `json:"fields,omitempty"`
	Lines  []string       `json:"lines,omitempty"`
	// Replica is the address of the one that said it, where several were asked.
	Replica string `json:"replica,omitempty"`
}

// Trouble is something that is wrong now.
type Trouble struct {
	// Kind is a word for programs, such as rules_rejected.
	Kind  string    `json:"kind"`
	Since time.Time `json:"since"`
	// Text says in a sentence what is wrong and what happens meanwhile. Fields and Lines are the details.
	Text   string         `json:"text"`
	Fields map[string]any `json:"fields,omitempty"`
	Lines  []string       `json:"lines,omitempty"`
	// Replica is the address of the one at which it is wrong, where several were asked.
	Replica string `json:"replica,omitempty"`
}

// The bounds on an event. What is beyond them is in the log.
const (
	// maxLines bounds the lines of an event, and the elements of a field.
	maxLines = 20
	// maxText bounds the bytes of a text.
	maxText = 2 << 10
)

// rulePrefix begins each line about a single rule, of which a file may have thousands.
const rulePrefix = "rules: "

// ruleLinesEnd begins the line that follows those about single rules.
const ruleLinesEnd = "rules do not load"

// troubles says with which lines of the log something begins to be wrong, and with which it ends. Lines may go on
// after what stands here. Of is the field that tells several of a kind apart.
var troubles = []struct {
	kind, of string
	begin    string
	ends     []string
}{
	{"rules_rejected", "", ruleLinesEnd, []string{"rules loaded", "rules are back at what is in force"}},
	{"table_rejected", "table", "a table does not load", []string{"table loaded"}},
	{"table_not_saved", "table", "a table cannot be saved", []string{"a table is saved again"}},
	{"store_away", "store", "the store is away", []string{"the store is back"}},
	{"store_not_reached", "", "the store was not reached before the start", []string{"the store was reached"}},
	{"management_server_away", "", "no connection to the management server", []string{"connected to the management server"}},
	{"tls_files_rejected", "cert", "TLS files do not load", []string{"TLS files loaded", "the TLS files are back at what is in use"}},
	{"token_file_rejected", "", "the token file does not load", []string{"token file loaded", "the token file is back at what is in use"}},
	{"state_not_saved", "", "state: counters are not saved", []string{"state: counters are saved"}},
	{"statsd_away", "addr", "statsd: cannot send", []string{"statsd: sending again"}},
	{"statsd_away", "addr", "statsd: nobody listens", []string{"statsd: sending again"}},
	{"spans_dropped", "", "tracing: spans cannot be sent", []string{"tracing: spans are sent again"}},
	{"draining", "", "draining", nil},
}

// Events are the last lines of the log, and what is wrong now as these tell. The methods may be called
// concurrently.
type Events struct {
	mu   sync.Mutex
	ring [MaxEvents]Event
	next uint64 // how many there were
	// lines are errors of rules that no event has yet.
	lines []string
	// wrong is by the kind and what tells several apart.
	wrong map[[2]string]Trouble
}

func newEvents() *Events { return &Events{wrong: map[[2]string]Trouble{}} }

// Watch returns a logger whose lines are events, too. Errors of single rules are lines of the event that follows. What
// net/http says is left out: clients can cause any number. What is warned of several times in a row is one event.
func (e *Events) Watch(logger *zap.Logger) *zap.Logger {
	return logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return &eventCore{Core: core, events: e} }))
}

// eventCore is a core whose entries are events.
type eventCore struct {
	zapcore.Core

	events *Events
	fields []zapcore.Field
}

// With implements [zapcore.Core].
func (c *eventCore) With(fields []zapcore.Field) zapcore.Core {
	return &eventCore{Core: c.Core.With(fields), events: c.events, fields: slices.Concat(c.fields, fields)}
}

// Enabled implements [zapcore.Core]: events do not depend on the level of the log.
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
		c.events.take(entry, slices.Concat(c.fields, fields))
	}
	if !c.Core.Enabled(entry.Level) {
		return nil
	}
	return c.Core.Write(entry, fields)
}

// take makes a line of the log an event.
func (e *Events) take(entry zapcore.Entry, fields []zapcore.Field) {
	if strings.HasPrefix(entry.Message, "http: ") {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if line, ok := strings.CutPrefix(entry.Message, rulePrefix); ok && entry.Level >= zapcore.ErrorLevel {
		if len(e.lines) < maxLines {
			e.lines = append(e.lines, cut(line))
		}
		return
	} else if ok {
		return
	}
	event := Event{Time: entry.Time.UTC(), Level: entry.Level.String(), Text: cut(entry.Message), Count: 1}
	if entry.Level == zapcore.WarnLevel {
		event.Level = "warning" // as in the log
	}
	if len(fields) > 0 {
		said := zapcore.NewMapObjectEncoder()
		for _, f := range fields {
			f.AddTo(said)
		}
		event.Fields = said.Fields
		for name, value := range said.Fields {
			said.Fields[name] = bounded(value)
		}
	}
	if strings.HasPrefix(entry.Message, ruleLinesEnd) {
		event.Lines, e.lines = e.lines, nil
	}
	e.judgeLocked(&event)
	e.addLocked(event)
}

// bounded returns the value of a field as an event has it.
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

// cut returns a text, or its beginning and an ellipsis.
func cut(text string) string {
	const mark = "…"
	if len(text) <= maxText {
		return text
	}
	end := maxText - len(mark)
	for n := 1; n < utf8.UTFMax && !utf8.RuneStart(text[end]); n++ { // text may not be UTF-8
		end--
	}
	return text[:end] + mark
}

// judgeLocked says what is wrong, or no longer wrong, as an event tells.
func (e *Events) judgeLocked(event *Event) {
	for _, t := range troubles {
		kind := [2]string{t.kind}
		if t.of != "" {
			kind[1] = fmt.Sprint(event.Fields[t.of])
		}
		if strings.HasPrefix(event.Text, t.begin) {
			since := event.Time
			if was, ok := e.wrong[kind]; ok {
				since = was.Since
			}
			e.wrong[kind] = Trouble{Kind: t.kind, Since: since, Text: event.Text, Fields: event.Fields, Lines: event.Lines}
		}
		for _, end := range t.ends {
			if strings.HasPrefix(event.Text, end) {
				delete(e.wrong, kind)
			}
		}
	}
}

func (e *Events) addLocked(event Event) {
	if e.next > 0 {
		last := &e.ring[(e.next-1)%MaxEvents]
		if last.Text == event.Text && last.Level == event.Level && (event.Level == "warning" || reflect.DeepEqual(last.Fields, event.Fields)) {
			event.Count += last.Count
			*last = event
			return
		}
	}
	e.ring[e.next%MaxEvents] = event
	e.next++
}

// Last returns the last events, the newest first.
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

// Wrong returns what is wrong now, the newest first.
func (e *Events) Wrong() []Trouble {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := []Trouble{}
	for _, t := range e.wrong {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Trouble) int { return b.Since.Compare(a.Since) })
	return all
}

// FieldsText writes what stands behind a message, for people: of a load that changed rules, what it changed.
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
