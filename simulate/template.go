package simulate

import (
	"errors"
	"fmt"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// Template creates a descriptor from the fields of an access log line. Its text is a descriptor
// whose values refer to fields in braces, such as user={x-user},path={:path|path}.
type Template struct {
	text    string
	entries []templateEntry
}

type templateEntry struct {
	key   []byte
	value *accesslog.Expression
}

// ParseTemplate parses a template. A backslash escapes the next character.
func ParseTemplate(text string) (*Template, error) {
	entries, err := descriptors.ParseEntries(text)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, errors.New("a descriptor without entries matches nothing; write, for example, user={x-user}")
	}
	t := &Template{text: text}
	for _, e := range entries {
		value, err := accesslog.ParseExpression(string(e.Value))
		if err != nil {
			return nil, err
		}
		t.entries = append(t.entries, templateEntry{e.Key, value})
	}
	return t, nil
}

// templateSource creates descriptors from templates.
type templateSource struct {
	domain []byte
	all    []*Template
	// ambiguous[i] is the reason to report for a line in which a value of all[i] is ambiguous.
	ambiguous []string
}

func (t *templateSource) resolve(f *accesslog.Format) error {
	for _, template := range t.all {
		for i := range template.entries {
			if err := template.entries[i].value.Resolve(f); err != nil {
				return fmt.Errorf("--descriptor %s: %w", template.text, err)
			}
		}
		t.ambiguous = append(t.ambiguous, fmt.Sprintf("--descriptor %s: ambiguous line: a value contains a separator of the format", template.text))
	}
	return nil
}

func (t *templateSource) appendCalls(r *worker, l *accesslog.Line) error {
	w := &r.writer
	call := len(w.arena)
	w.beginCall(t.domain, 0)
	for i, template := range t.all {
		m := len(w.arena)
		if !w.beginDescriptor(&descriptors.Descriptor{}) {
			break
		}
		s := accesslog.Present
		for j := range template.entries {
			if !w.beginEntry(template.entries[j].key) {
				break
			}
			var value []byte
			if value, s = template.entries[j].value.Value(l); s != accesslog.Present {
				break
			}
			w.appendText(value)
		}
		switch s {
		case accesslog.Present:
			r.batch.computed++
		case accesslog.Ambiguous:
			r.addUnknown(t.ambiguous[i])
			w.dropDescriptor(m)
		case accesslog.Absent:
			w.dropDescriptor(m)
		}
	}
	w.dropEmptyCall(call)
	return nil
}
