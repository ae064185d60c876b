package accesslog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Expression is a text with fields in braces, such as {x-user}.
type Expression struct {
	parts []part
}

// part is a literal, or a field and its filters.
type part struct {
	literal []byte
	field   string
	filters []filter
	slot    int
}

// ParseExpression parses an expression.
func ParseExpression(text string) (*Expression, error) {
	e := &Expression{}
	rest := text
	for rest != "" {
		literal, after, found := strings.Cut(rest, "{")
		if literal != "" {
			e.parts = append(e.parts, part{literal: []byte(literal)})
		}
		if !found {
			return e, nil
		}
		inner, next, found := strings.Cut(after, "}")
		if !found {
			return nil, fmt.Errorf("unclosed { in %q", text)
		}
		p, err := newPart(inner)
		if err != nil {
			return nil, fmt.Errorf("{%s}: %w", inner, err)
		}
		e.parts = append(e.parts, p)
		rest = next
	}
	return e, nil
}

func newPart(inner string) (part, error) {
	texts := strings.Split(inner, "|")
	p := part{field: texts[0]}
	if p.field == "" {
		return p, errors.New("no field; write {x-user}")
	}
	for _, text := range texts[1:] {
		f, err := newFilter(text)
		if err != nil {
			return p, err
		}
		p.filters = append(p.filters, f)
	}
	return p, nil
}

// Resolve selects the fields of the expression. It returns an error if the log lacks one.
func (e *Expression) Resolve(f *Format) error {
	for i := range e.parts {
		p := &e.parts[i]
		if p.field == "" {
			continue
		}
		if p.slot = f.Select(p.field); p.slot < 0 {
			return fmt.Errorf("{%s}: unknown field; the log has %s%s", p.field, f.FieldList(),
				rules.DidYouMean(p.field, f.Fields()))
		}
	}
	return nil
}

// State describes the value of an expression.
type State uint8

// A value is present, absent, or differs between the readings of a line.
const (
	Present State = iota
	Absent
	Ambiguous
)

// Value returns the expression's value. It is valid until the next call for the line.
func (e *Expression) Value(l *Line) ([]byte, State) {
	if len(e.parts) == 1 && len(e.parts[0].filters) == 0 {
		return e.parts[0].value(l)
	}
	l.expanded = l.expanded[:0]
	for i := range e.parts {
		p := &e.parts[i]
		value, s := p.value(l)
		if s != Present {
			return nil, s
		}
		for j, f := range p.filters {
			out, ok := f(l.filtered[j&1][:0], value)
			l.filtered[j&1] = out
			if !ok {
				return nil, Absent
			}
			value = out
		}
		l.expanded = append(l.expanded, value...)
	}
	return l.expanded, Present
}

// value returns the part's value before filtering.
func (p *part) value(l *Line) ([]byte, State) {
	if p.field == "" {
		return p.literal, Present
	}
	if l.IsAmbiguous(p.slot) {
		return nil, Ambiguous
	}
	if value := l.values[p.slot]; value != nil {
		return value, Present
	}
	return nil, Absent
}
