package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// namedFields are the fields of logs that name them, and what --format says they are called.
type namedFields struct {
	// renamed are what fields are called in the log, by our name.
	renamed map[string]string
	// observed are the fields of the log's first lines, and known says how often each of them came.
	observed []string
	seen     map[string]int
	// nonNumeric says how often each of those that may be the status was not a number.
	nonNumeric map[string]int
	// objects has those of them that are objects.
	objects map[string]bool
	// metadata is the one of them that holds what the filter keeps of a reply.
	metadata string
	// otherMetadata says that the field with our name for that holds something else.
	otherMetadata bool
}

// observeName takes in a field of the first lines.
func (f *namedFields) observeName(name string) {
	if f.seen == nil {
		f.seen = map[string]int{}
	}
	if f.seen[name]++; f.seen[name] == 1 {
		f.observed = append(f.observed, name)
	}
}

// observeValue takes in the value of a field of the first lines.
func (f *namedFields) observeValue(name string, value []byte) {
	switch {
	case isMetadata(value):
		f.metadata = cmp.Or(f.metadata, name)
	case name == FieldMetadata && !isAbsent(value):
		f.otherMetadata = true
	case slices.Contains(fieldAliases[fieldStatus], name) && !isAbsent(value) && !isStatusCode(value):
		if f.nonNumeric == nil {
			f.nonNumeric = map[string]int{}
		}
		f.nonNumeric[name]++
	}
}

// isMetadata reports whether a value is what the rate limit filter keeps of a reply.
func isMetadata(value []byte) bool {
	return len(value) > 0 && value[0] == '{' && bytes.Contains(value, []byte(`"domain"`)) && bytes.Contains(value, []byte(`"descriptors"`))
}

// logName returns what a field is called in the log, "" if it is not there.
func (f *namedFields) logName(name string) string {
	if to, ok := f.renamed[name]; ok {
		return to
	}
	if name == FieldMetadata && (f.metadata != "" || f.otherMetadata) {
		return f.metadata
	}
	// The best name counts, but for one that few of those lines have that have another.
	called, most := "", 0
	for _, other := range aliasesOf(name) {
		if n := f.seen[other] - f.nonNumeric[other]; n > 2*most && (other == name || !f.objects[other]) {
			called, most = other, n
		}
	}
	switch {
	case called != "":
		return called
	case f.nonNumeric[name] > 0:
		return name
	default:
		return f.headerName(name)
	}
}

// headerName returns what a header of the request is called, "" if it is not there.
func (f *namedFields) headerName(name string) string {
	if name == fieldTime || name == fieldStatus || name == fieldFlags || strings.HasPrefix(name, ":") {
		return ""
	}
	for _, pattern := range headerPatterns {
		want := normalizeHeader(strings.Replace(pattern, "NAME", name, 1))
		if i := slices.IndexFunc(f.observed, func(other string) bool { return normalizeHeader(other) == want }); i >= 0 {
			return f.observed[i]
		}
	}
	return ""
}

// normalizeHeader makes names of headers alike that servers write in different ways.
func normalizeHeader(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

func (f *namedFields) fields() []string { return f.observed }

// slotsByName returns where values go, by what fields are called in the log, but for those that are
// in a line within the line, which may be nil.
func (f *namedFields) slotsByName(l *layout, within lineParser) map[string]int {
	slots := map[string]int{}
	for slot, name := range l.names {
		if key := f.logName(name); key != "" && (within == nil || within.logName(name) == "") {
			slots[key] = slot
		}
	}
	return slots
}

// checkRenamed returns an error if --format names a field that is not there.
func (f *namedFields) checkRenamed() error {
	for name, field := range f.renamed {
		if f.seen[field] == 0 {
			return fmt.Errorf("--format: %s=%s: the first lines have no such field: they have %s", name, field, joinNames(f.observed))
		}
	}
	return nil
}

// joinNames writes the names of fields.
func joinNames(names []string) string {
	const most = 60
	if n := len(names) - most; n > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}

// parseRenamings reads what --format says after json or csv: name=field, apart by spaces.
func parseRenamings(renamings []string) (map[string]string, error) {
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
