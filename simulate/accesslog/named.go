package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// named are the fields of logs that name them, and what --format says they are called.
type named struct {
	// names are what fields are called in the log, by our name.
	names map[string]string
	// first are the fields of the log's first lines, and known says how often each of them came.
	first []string
	known map[string]int
	// words says how often each of those that may be the status was not a number.
	words map[string]int
	// objects has those of them that are objects.
	objects map[string]bool
	// metadata is the one of them that holds what the filter keeps of a reply.
	metadata string
	// otherMetadata says that the field with our name for that holds something else.
	otherMetadata bool
}

// learn takes in a field of the first lines.
func (f *named) learn(name string) {
	if f.known == nil {
		f.known = map[string]int{}
	}
	if f.known[name]++; f.known[name] == 1 {
		f.first = append(f.first, name)
	}
}

// see takes in the value of a field of the first lines.
func (f *named) see(name string, value []byte) {
	switch {
	case isMetadata(value):
		f.metadata = cmp.Or(f.metadata, name)
	case name == FieldMetadata && !isNone(value):
		f.otherMetadata = true
	case slices.Contains(otherNames[fieldStatus], name) && !isNone(value) && !isCode(value):
		if f.words == nil {
			f.words = map[string]int{}
		}
		f.words[name]++
	}
}

// isMetadata reports whether a value is what the rate limit filter keeps of a reply.
func isMetadata(value []byte) bool {
	return len(value) > 0 && value[0] == '{' && bytes.Contains(value, []byte(`"domain"`)) && bytes.Contains(value, []byte(`"descriptors"`))
}

// calledIn returns what a field is called in the log, "" if it is not there.
func (f *named) calledIn(name string) string {
	if to, ok := f.names[name]; ok {
		return to
	}
	if name == FieldMetadata && (f.metadata != "" || f.otherMetadata) {
		return f.metadata
	}
	// The best name counts, but for one that few of those lines have that have another.
	called, most := "", 0
	for _, other := range namesOf(name) {
		if n := f.known[other] - f.words[other]; n > 2*most && (other == name || !f.objects[other]) {
			called, most = other, n
		}
	}
	switch {
	case called != "":
		return called
	case f.words[name] > 0:
		return name
	default:
		return f.header(name)
	}
}

// header returns what a header of the request is called, "" if it is not there.
func (f *named) header(name string) string {
	if name == fieldTime || name == fieldStatus || name == fieldFlags || strings.HasPrefix(name, ":") {
		return ""
	}
	for _, pattern := range headerNames {
		want := alike(strings.Replace(pattern, "NAME", name, 1))
		if i := slices.IndexFunc(f.first, func(other string) bool { return alike(other) == want }); i >= 0 {
			return f.first[i]
		}
	}
	return ""
}

// alike makes names of headers alike that servers write in different ways.
func alike(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

func (f *named) fields() []string { return f.first }

// slots returns where values go, by what fields are called in the log, but for those that are
// in a line within the line, which may be nil.
func (f *named) slots(l *layout, within lineFormat) map[string]int {
	slots := map[string]int{}
	for slot, name := range l.names {
		if key := f.calledIn(name); key != "" && (within == nil || within.calledIn(name) == "") {
			slots[key] = slot
		}
	}
	return slots
}

// check returns an error if --format names a field that is not there.
func (f *named) check() error {
	for name, field := range f.names {
		if f.known[field] == 0 {
			return fmt.Errorf("--format: %s=%s: the first lines have no such field: they have %s", name, field, list(f.first))
		}
	}
	return nil
}

// list writes the names of fields.
func list(names []string) string {
	const most = 60
	if n := len(names) - most; n > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}

// renamed reads what --format says after json or csv: name=field, apart by spaces.
func renamed(renamings []string) (map[string]string, error) {
	names := map[string]string{}
	for _, renaming := range renamings {
		name, field, ok := strings.Cut(renaming, "=")
		if !ok || name == "" || field == "" {
			return nil, errors.New("--format: " + renaming + ": want NAME=FIELD, such as time=ts")
		}
		names[strings.ToLower(name)] = field
	}
	return names, nil
}
