package telemetry

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Condition is something that is wrong now.
type Condition struct {
	Code Code `json:"code"`
	// Kind is the older name of the code.
	Kind string `json:"kind"`
	// Severity is info, warning or error.
	Severity string    `json:"severity"`
	Since    time.Time `json:"since"`
	// Text says what is wrong and what happens meanwhile, and Remedy what to do. Docs is the page with more.
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
	Docs   string `json:"docs"`
	// Fields and Lines are the details.
	Fields map[string]any `json:"fields,omitempty"`
	Lines  []string       `json:"lines,omitempty"`
	// Replica is the address of the replica that has the condition, if several were asked.
	Replica string `json:"replica,omitempty"`
}

// NewCondition returns a condition of a code with the texts of its definition.
func NewCondition(code Code, since time.Time) Condition {
	d := code.Define()
	return Condition{
		Code: code, Kind: cmp.Or(d.Kind, string(code)), Severity: levelName(d.Level), Since: since.UTC(),
		Text: d.Sentence, Remedy: d.Remedy, Docs: d.Docs,
	}
}

// Raise begins a condition, or gives it new details, by a line of the log: the sentence of its definition, with the fields, a
// remedy and the attribute condition=CODE. Subject tells apart several conditions of a code, such as the address of a store.
// A field named remedy replaces the remedy of the definition. The logger must be one of [Events.Watch], and must not be sampled.
func Raise(logger *zap.Logger, code Code, subject string, fields ...zap.Field) {
	raiseWithLines(logger, code, subject, nil, fields)
}

// RaiseWithLines is [Raise] for a condition of several errors. The log gets a line for each before, since people and log stores
// read lines.
func RaiseWithLines(logger *zap.Logger, code Code, subject, prefix string, errors []string, fields ...zap.Field) {
	for _, line := range errors {
		logger.Error(prefix+line, zap.Inline(&transition{act: actDetail, codes: []Code{code}}))
	}
	raiseWithLines(logger, code, subject, errors, fields)
}

func raiseWithLines(logger *zap.Logger, code Code, subject string, lines []string, fields []zap.Field) {
	d := code.Define()
	remedy, fields := takeRemedy(d, fields)
	t := &transition{act: actRaise, codes: []Code{code}, subject: subject, remedy: remedy, lines: lines}
	logger.Log(d.Level, d.Sentence, append(fields, zap.Inline(t))...)
}

// takeRemedy returns the field named remedy, or else the remedy of a definition, and a copy of the other fields.
func takeRemedy(d *Definition, fields []zap.Field) (remedy string, others []zap.Field) {
	remedy = d.Remedy
	for _, f := range fields {
		if f.Key == "remedy" {
			remedy = f.String
		} else {
			others = append(others, f)
		}
	}
	return remedy, others
}

// Clear returns a field for the line that the log gets when conditions end. It ends them, and if there were such, the line has the
// attribute condition=CODE, or several codes with commas.
func Clear(subject string, codes ...Code) zap.Field {
	return zap.Inline(&transition{act: actClear, codes: codes, subject: subject})
}

// Mark returns the attribute condition=CODE for a line about a condition that is neither begun nor ended by it.
func Mark(code Code) zap.Field { return zap.String(conditionKey, string(code)) }

const conditionKey = "condition"

// transition is the field of a line that begins or ends conditions.
type transition struct {
	act     act
	codes   []Code
	subject string
	remedy  string
	lines   []string
}

type act byte

const (
	actRaise act = iota
	actClear
	actEnded  // the conditions have ended already
	actDetail // an error among those of a condition that a later line raises
)

// MarshalLogObject implements [zapcore.ObjectMarshaler].
func (t *transition) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	if t.act == actRaise {
		enc.AddString("remedy", t.remedy)
	}
	enc.AddString(conditionKey, joinCodes(t.codes))
	return nil
}

func joinCodes(codes []Code) string {
	names := make([]string, len(codes))
	for i, code := range codes {
		names[i] = string(code)
	}
	return strings.Join(names, ",")
}

// conditionID tells conditions apart.
type conditionID struct {
	code    Code
	subject string
}

// Conditions are what is wrong now. Lines of the log begin and end some of them; see [Raise] and [Clear]. The others last while
// something goes on to happen; see [Conditions.WhileGrows]. The methods may be called concurrently.
type Conditions struct {
	mu     sync.Mutex
	raised map[conditionID]Condition

	growing sync.Mutex // guards growths with their elements, and logger
	growths []*growth
	logger  *zap.Logger // of the last Watch
}

func newConditions() *Conditions {
	return &Conditions{raised: map[conditionID]Condition{}, logger: zap.NewNop()}
}

// raise has the condition of a transition be that of an event.
func (c *Conditions) raise(t *transition, event *Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := conditionID{t.codes[0], t.subject}
	now := NewCondition(id.code, event.Time)
	if before, ok := c.raised[id]; ok {
		now.Since = before.Since
	}
	now.Remedy, now.Fields, now.Lines = cut(t.remedy), event.Fields, event.Lines
	c.raised[id] = now
}

// clear ends the conditions that the fields of a line clear. It replaces the field that clears them by the codes of those that were
// active, and reports whether there were any.
func (c *Conditions) clear(fields []zap.Field) (others []zap.Field, ends bool) {
	i := slices.IndexFunc(fields, func(f zap.Field) bool {
		t, ok := f.Interface.(*transition)
		return ok && (t.act == actClear || t.act == actEnded)
	})
	if i < 0 {
		return fields, false
	}
	t, _ := fields[i].Interface.(*transition)
	ended := t.codes
	if t.act == actClear {
		ended = c.remove(t)
	}
	fields = slices.Delete(slices.Clone(fields), i, i+1)
	if len(ended) > 0 {
		fields = append(fields, zap.String(conditionKey, joinCodes(ended)))
	}
	return fields, len(ended) > 0
}

// remove removes the conditions of a transition and returns the codes of those that were active.
func (c *Conditions) remove(t *transition) (active []Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, code := range t.codes {
		id := conditionID{code, t.subject}
		if _, ok := c.raised[id]; ok {
			delete(c.raised, id)
			active = append(active, code)
		}
	}
	return active
}

// logTo has the lines about conditions of counts written by a logger.
func (c *Conditions) logTo(logger *zap.Logger) {
	c.growing.Lock()
	defer c.growing.Unlock()
	c.logger = logger
}

// Active returns the conditions at the time now, the newest first.
func (c *Conditions) Active(now time.Time) []Condition {
	c.Tick(now)
	all := []Condition{}
	c.growing.Lock()
	for _, g := range c.growths {
		if g.active(now) {
			all = append(all, g.condition())
		}
	}
	c.growing.Unlock()
	c.mu.Lock()
	for _, raised := range c.raised {
		all = append(all, raised)
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b Condition) int {
		return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.Code, b.Code))
	})
	return all
}
