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

// Condition is a problem that exists now.
type Condition struct {
	Code Code `json:"code"`
	// Severity is info, warning or error.
	Severity string    `json:"severity"`
	Since    time.Time `json:"since"`
	// Text describes the problem and its effect. Docs is the page with details.
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
	Docs   string `json:"docs"`
	// Fields and Lines are details.
	Fields map[string]any `json:"fields,omitempty"`
	Lines  []string       `json:"lines,omitempty"`
	// Replica is the address of the replica that has the condition, if several were queried.
	Replica string `json:"replica,omitempty"`
}

// NewCondition returns a condition with the texts of its code's definition.
func NewCondition(code Code, since time.Time) Condition {
	d := code.Define()
	return Condition{
		Code: code, Severity: levelName(d.Level), Since: since.UTC(),
		Text: d.Sentence, Remedy: d.Remedy, Docs: d.Docs,
	}
}

// Raise starts a condition, or updates its details, with a line of the log: the sentence of its
// definition, the fields, a remedy and the attribute condition=CODE. subject distinguishes
// conditions with the same code, such as the address of a store. A field named remedy replaces the
// remedy of the definition. The logger must have been returned by [Events.Watch] and must not be
// sampled.
func Raise(logger *zap.Logger, code Code, subject string, fields ...zap.Field) {
	raiseWithLines(logger, code, subject, nil, fields)
}

// RaiseWithLines is [Raise] for a condition with several errors. Each error is logged on a line of
// its own first, since people and log stores read lines.
func RaiseWithLines(logger *zap.Logger, code Code, subject, prefix string, errors []string, fields ...zap.Field) {
	for _, line := range errors {
		logger.Error(prefix+line, zap.Inline(&transition{act: actDetail, codes: []Code{code}}))
	}
	raiseWithLines(logger, code, subject, errors, fields)
}

func raiseWithLines(logger *zap.Logger, code Code, subject string, lines []string, fields []zap.Field) {
	d := code.Define()
	remedy, fields := splitRemedy(d, fields)
	t := &transition{act: actRaise, codes: []Code{code}, subject: subject, remedy: remedy, lines: lines}
	logger.Log(d.Level, d.Sentence, append(fields, zap.Inline(t))...)
}

// splitRemedy returns the value of the field named remedy, or else the remedy of the definition,
// and the other fields.
func splitRemedy(d *Definition, fields []zap.Field) (remedy string, others []zap.Field) {
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

// Update raises a condition as [Raise] does if it is not active, and else only updates its fields,
// without a line of the log.
func (c *Conditions) Update(code Code, subject string, fields ...zap.Field) {
	attributes := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(attributes)
		attributes.Fields[f.Key] = bounded(attributes.Fields[f.Key])
	}
	id := conditionID{code, subject}
	c.mu.Lock()
	active, ok := c.raised[id]
	if ok {
		active.Fields = attributes.Fields
		c.raised[id] = active
	}
	full := !ok && c.countLocked(code) >= maxPerCode
	c.mu.Unlock()
	if !ok && !full {
		Raise(c.currentLogger(), code, subject, fields...)
	}
}

// End ends a condition of [Conditions.Update], with a line of the log, if it is active.
func (c *Conditions) End(code Code, subject string) {
	c.mu.Lock()
	active, ok := c.raised[conditionID{code, subject}]
	c.mu.Unlock()
	if ok {
		c.currentLogger().Info("ended: "+active.Text, zap.String("subject", subject), Clear(subject, code))
	}
}

func (c *Conditions) currentLogger() *zap.Logger {
	c.growing.Lock()
	defer c.growing.Unlock()
	return c.logger
}

// maxPerCode bounds the conditions with the same code. Further ones are only logged, so that they
// neither use memory nor hide others.
const maxPerCode = 20

// countLocked returns the number of raised conditions with a code.
func (c *Conditions) countLocked(code Code) (n int) {
	for id := range c.raised {
		if id.code == code {
			n++
		}
	}
	return n
}

// Clear returns a field for a log line that ends conditions. If conditions with these codes and the
// subject exist, it ends them, and the line gets the attribute condition=CODE, with several codes
// separated by commas.
func Clear(subject string, codes ...Code) zap.Field {
	return zap.Inline(&transition{act: actClear, codes: codes, subject: subject})
}

// Mark returns the attribute condition=CODE for a line about a condition that the line neither
// starts nor ends.
func Mark(code Code) zap.Field { return zap.String(conditionKey, string(code)) }

const conditionKey = "condition"

// transition is the field of a line that starts or ends conditions.
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
	actDetail // one error of a condition that a later line raises
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

type conditionID struct {
	code    Code
	subject string
}

// Conditions are the current conditions. Some start and end with lines of the log; see [Raise] and
// [Clear]. The others last while a count grows; see [Conditions.WhileGrows]. The methods may be
// called concurrently.
type Conditions struct {
	mu     sync.Mutex
	raised map[conditionID]Condition

	growing sync.Mutex // guards growths, their elements, and logger
	growths []*growth
	logger  *zap.Logger // logger of the last Watch
}

func newConditions() *Conditions {
	return &Conditions{raised: map[conditionID]Condition{}, logger: zap.NewNop()}
}

// raise starts or updates the condition of a transition with the details of an event.
func (c *Conditions) raise(t *transition, event *Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := conditionID{t.codes[0], t.subject}
	condition := NewCondition(id.code, event.Time)
	if before, ok := c.raised[id]; ok {
		condition.Since = before.Since
	} else if c.countLocked(id.code) >= maxPerCode {
		return
	}
	condition.Remedy = cut(t.remedy)
	condition.Fields = event.Fields
	condition.Lines = event.Lines
	c.raised[id] = condition
}

// clear ends the conditions of the field among fields that [Clear] returned. It replaces that field
// by the codes of the conditions that were active, and reports whether there were any.
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

// setLogger sets the logger of the conditions that last while a count grows.
func (c *Conditions) setLogger(logger *zap.Logger) {
	c.growing.Lock()
	defer c.growing.Unlock()
	c.logger = logger
}

// Active returns the conditions at the time now, sorted by [CompareConditions].
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
	slices.SortFunc(all, CompareConditions)
	return all
}

// CompareConditions compares by severity, the most severe first, then by time, the newest first. So
// a client that causes warnings hides no error.
func CompareConditions(a, b Condition) int {
	// Not the level of the code: another replica may have codes that this version does not know.
	rank := func(c *Condition) int { return slices.Index([]string{"error", "warning", "info"}, c.Severity) }
	return cmp.Or(cmp.Compare(rank(&a), rank(&b)), b.Since.Compare(a.Since), cmp.Compare(a.Code, b.Code))
}
