package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// Template makes a descriptor of the fields of a line. It is written as a descriptor whose
// values have fields in braces, such as user={x-user},path={:path|path}.
type Template struct {
	text    string
	entries []templateEntry
}

type templateEntry struct {
	key   []byte
	value Expression
}

// Expression is text with fields in braces, such as {x-user}.
type Expression struct {
	text  string
	parts []part
}

// part is a literal, or a field that goes through filters.
type part struct {
	literal []byte
	field   string
	filters []filter
	slot    int
}

// filter appends what it makes of a value; ok is false if the value is nothing that it can
// take, which is as if the field were absent.
type filter func(to, value []byte) (out []byte, ok bool)

// ParseTemplate reads a template. A backslash makes the next character part of a key or of
// text.
func ParseTemplate(text string) (*Template, error) {
	entries, err := descriptors.ParseEntries(text)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, errors.New("a descriptor without entries matches nothing: write user={x-user}")
	}
	t := &Template{text: text}
	for _, e := range entries {
		value, err := ParseExpression(string(e.Value))
		if err != nil {
			return nil, err
		}
		t.entries = append(t.entries, templateEntry{e.Key, *value})
	}
	return t, nil
}

// ParseExpression reads an expression.
func ParseExpression(text string) (*Expression, error) {
	e := &Expression{text: text}
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
			return nil, fmt.Errorf("%q has a { without a }", text)
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

// IsConstant reports whether the expression has no field, so that it is the same for each
// line.
func (e *Expression) IsConstant() bool {
	return !slices.ContainsFunc(e.parts, func(p part) bool { return p.field != "" })
}

func newPart(inner string) (part, error) {
	words := strings.Split(inner, "|")
	p := part{field: words[0]}
	if p.field == "" {
		return p, errors.New("no field: write {x-user}")
	}
	for _, word := range words[1:] {
		f, err := newFilter(word)
		if err != nil {
			return p, err
		}
		p.filters = append(p.filters, f)
	}
	return p, nil
}

func newFilter(word string) (filter, error) {
	name, argument, _ := strings.Cut(word, ":")
	switch name {
	case "path":
		return withoutQuery, nil
	case "lower":
		return toLower, nil
	case "ip":
		return withoutPort, nil
	case "prefix":
		v4, v6, ok := strings.Cut(argument, ":")
		short, err1 := strconv.ParseUint(v4, 10, 8)
		long, err2 := strconv.ParseUint(v6, 10, 8)
		if !ok || err1 != nil || err2 != nil || short > 32 || long > 128 {
			return nil, fmt.Errorf("%q: want prefix:V4:V6, the lengths of the networks, such as prefix:24:64", word)
		}
		return network(int(short), int(long)), nil
	case "xff":
		n, err := strconv.ParseUint(argument, 10, 8)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q: want xff:N, the N-th address from the right, such as xff:1", word)
		}
		return fromRight(int(n)), nil
	default:
		return nil, fmt.Errorf("%q is not known: the filters are path, lower, ip, prefix:24:64 and xff:N", word)
	}
}

func withoutQuery(to, value []byte) ([]byte, bool) {
	if i := bytes.IndexByte(value, '?'); i >= 0 {
		value = value[:i]
	}
	return append(to, value...), true
}

func toLower(to, value []byte) ([]byte, bool) {
	for _, c := range value {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		to = append(to, c)
	}
	return to, true
}

func withoutPort(to, value []byte) ([]byte, bool) {
	a, ok := parseAddress(value)
	if !ok {
		return to, false
	}
	return a.AppendTo(to), true
}

func network(v4, v6 int) filter {
	return func(to, value []byte) ([]byte, bool) {
		a, ok := parseAddress(value)
		if !ok {
			return to, false
		}
		length := v6
		if a.Is4() {
			length = v4
		}
		n, err := a.Prefix(length)
		if err != nil {
			return to, false
		}
		return n.AppendTo(to), true
	}
}

func fromRight(n int) filter {
	return func(to, value []byte) ([]byte, bool) {
		for range n - 1 {
			i := bytes.LastIndexByte(value, ',')
			if i < 0 {
				return to, false
			}
			value = value[:i]
		}
		value = bytes.Trim(value[bytes.LastIndexByte(value, ',')+1:], " \t")
		return append(to, value...), len(value) > 0
	}
}

// parseAddress reads an address, which may have a port: 192.0.2.1:443, [2001:db8::1]:443.
func parseAddress(value []byte) (netip.Addr, bool) {
	text := string(value)
	if strings.HasPrefix(text, "[") || strings.Count(text, ":") == 1 {
		p, err := netip.ParseAddrPort(text)
		return p.Addr(), err == nil
	}
	a, err := netip.ParseAddr(text)
	return a, err == nil && a.Zone() == ""
}

// resolve says where fields come from. It returns an error for one that the log lacks.
func (e *Expression) resolve(f format, l *layout) error {
	for i := range e.parts {
		p := &e.parts[i]
		if p.field == "" {
			continue
		}
		if !f.has(p.field) {
			return fmt.Errorf("{%s}: the log has no such field: it has %s", p.field, strings.Join(f.fields(), ", "))
		}
		p.slot = l.want(p.field)
	}
	return nil
}

// state is what came of a value.
type state uint8

const (
	present state = iota
	absent
	unsure
)

// value appends the expression's value to w, with its length.
func (e *Expression) value(w *writer, v *values) state {
	if len(e.parts) == 1 && len(e.parts[0].filters) == 0 {
		p := &e.parts[0]
		value := p.literal
		if p.field != "" {
			if v.unsure != 0 && v.isUnsure(p.slot) {
				return unsure
			}
			if value = v.of[p.slot]; value == nil {
				return absent
			}
		}
		w.text(value)
		return present
	}
	made, s := e.appendTo(v.made[:0], v)
	v.made = made
	if s == present {
		w.text(made)
	}
	return s
}

// appendTo appends the expression's value.
func (e *Expression) appendTo(to []byte, v *values) ([]byte, state) {
	for i := range e.parts {
		p := &e.parts[i]
		if p.field == "" {
			to = append(to, p.literal...)
			continue
		}
		if v.unsure != 0 && v.isUnsure(p.slot) {
			return to, unsure
		}
		value := v.of[p.slot]
		if value == nil {
			return to, absent
		}
		for j, f := range p.filters {
			out, ok := f(v.filtered[j&1][:0], value)
			v.filtered[j&1] = out
			if !ok {
				return to, absent
			}
			value = out
		}
		to = append(to, value...)
	}
	return to, present
}

// templates are where descriptors come from if the log itself does not say.
type templates struct {
	domain []byte
	all    []*Template
	// ambiguous is parallel to all: why a value of it is not certain.
	ambiguous []string
}

func (t *templates) resolve(f format, l *layout) error {
	for _, template := range t.all {
		for i := range template.entries {
			if err := template.entries[i].value.resolve(f, l); err != nil {
				return fmt.Errorf("--descriptor %s: %w", template.text, err)
			}
		}
		t.ambiguous = append(t.ambiguous, fmt.Sprintf("--descriptor %s: a value has what stands between values, so that the line can be read in several ways", template.text))
	}
	return nil
}

func (t *templates) describe(r *reading) error {
	w := &r.writer
	call := w.mark()
	w.call(t.domain, 0)
	sent := 0
	for i, template := range t.all {
		m := w.mark()
		if !w.descriptor(&descriptors.Descriptor{}) {
			break
		}
		s := present
		for j := range template.entries {
			if !w.key(template.entries[j].key) {
				break
			}
			if s = template.entries[j].value.value(w, r.values); s != present {
				break
			}
		}
		switch s {
		case present:
			sent++
			r.batch.computed++
		case unsure:
			r.unknown(t.ambiguous[i])
			w.dropDescriptor(m)
		case absent:
			w.dropDescriptor(m)
		}
	}
	if sent == 0 {
		w.dropCall(call)
	}
	return nil
}
