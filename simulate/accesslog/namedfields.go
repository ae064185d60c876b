package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// namedFields are the fields of a log that names them, with the renamings of --format.
type namedFields struct {
	// renamed maps our field names to the log's, from --format.
	renamed map[string]string
	// observed are the fields of the first lines in order, and seen counts the lines that have
	// them.
	observed []string
	seen     map[string]int
	// nonNumeric counts the nonnumeric values of possible status fields.
	nonNumeric map[string]int
	// objects are the fields that are objects.
	objects map[string]bool
	// metadata is the field with the rate limit filter's metadata.
	metadata string
	// otherMetadata reports that the field "metadata" contains something else.
	otherMetadata bool
}

func (f *namedFields) observeName(name string) {
	if f.seen == nil {
		f.seen = map[string]int{}
	}
	if f.seen[name]++; f.seen[name] == 1 {
		f.observed = append(f.observed, name)
	}
}

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

// isMetadata reports whether a value is the rate limit filter's metadata.
func isMetadata(value []byte) bool {
	return len(value) > 0 && value[0] == '{' && bytes.Contains(value, []byte(`"domain"`)) &&
		bytes.Contains(value, []byte(`"descriptors"`))
}

// logName returns the log's name of a field, or "" if the log lacks it.
func (f *namedFields) logName(name string) string {
	if to, ok := f.renamed[name]; ok {
		return to
	}
	if name == FieldMetadata && (f.metadata != "" || f.otherMetadata) {
		return f.metadata
	}
	// An earlier alias wins unless more than twice as many lines have a later one.
	logName := ""
	count := 0
	aliases, ok := fieldAliases[name]
	if !ok {
		aliases = []string{name}
	}
	for _, other := range aliases {
		if n := f.seen[other] - f.nonNumeric[other]; n > 2*count && (other == name || !f.objects[other]) {
			logName = other
			count = n
		}
	}
	switch {
	case logName != "":
		return logName
	case f.nonNumeric[name] > 0:
		return name
	default:
		return f.headerName(name)
	}
}

// headerName returns the log's name of a request header, or "" if the log lacks it.
func (f *namedFields) headerName(name string) string {
	if name == fieldTime || name == fieldStatus || name == fieldFlags || strings.HasPrefix(name, ":") {
		return ""
	}
	for _, prefix := range []string{"", "http_"} {
		want := normalizeHeader(prefix + name)
		if i := slices.IndexFunc(f.observed, func(other string) bool { return normalizeHeader(other) == want }); i >= 0 {
			return f.observed[i]
		}
	}
	return ""
}

// normalizeHeader unifies the spellings of a header's name.
func normalizeHeader(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

func (f *namedFields) fields() []string { return f.observed }

// slotsByName returns the slots by the log's names of fields. It omits fields of the embedded line,
// whose format is embedded, or nil.
func (f *namedFields) slotsByName(l *layout, embedded lineParser) map[string]int {
	slots := map[string]int{}
	for slot, name := range l.names {
		if key := f.logName(name); key != "" && (embedded == nil || embedded.logName(name) == "") {
			slots[key] = slot
		}
	}
	return slots
}

// checkRenamed returns an error if --format names a missing field.
func (f *namedFields) checkRenamed() error {
	for name, field := range f.renamed {
		if f.seen[field] == 0 {
			return fmt.Errorf("--format: %s=%s: the first lines do not have this field; they have %s", name, field,
				joinNames(f.observed))
		}
	}
	return nil
}

// joinNames formats the first names for a message.
func joinNames(names []string) string {
	const maxNames = 60
	if n := len(names) - maxNames; n > 0 {
		return strings.Join(names[:maxNames], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}

// parseRenamings parses the NAME=FIELD arguments of --format.
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
