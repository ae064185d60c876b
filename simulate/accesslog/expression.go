package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

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

// String returns what was parsed.
func (e *Expression) String() string { return e.text }

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

// Resolve says where fields come from. It returns an error for one that the log lacks.
func (e *Expression) Resolve(f *Format) error {
	for i := range e.parts {
		p := &e.parts[i]
		if p.field == "" {
			continue
		}
		if p.slot = f.Want(p.field); p.slot < 0 {
			return fmt.Errorf("{%s}: the log has no such field: it has %s", p.field, strings.Join(f.Fields(), ", "))
		}
	}
	return nil
}

// State is what is known of a value.
type State uint8

// A value is there, is absent, or differs between the ways in which the line can be read.
const (
	Present State = iota
	Absent
	Unsure
)

// Value returns the expression's value, which stands until the next one is asked for.
func (e *Expression) Value(l *Line) ([]byte, State) {
	if len(e.parts) == 1 && len(e.parts[0].filters) == 0 {
		return e.parts[0].value(l)
	}
	l.made = l.made[:0]
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
		l.made = append(l.made, value...)
	}
	return l.made, Present
}

// value is that of the part before it goes through filters.
func (p *part) value(l *Line) ([]byte, State) {
	if p.field == "" {
		return p.literal, Present
	}
	if l.IsUnsure(p.slot) {
		return nil, Unsure
	}
	if value := l.of[p.slot]; value != nil {
		return value, Present
	}
	return nil, Absent
}
