package accesslog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// named are the fields of logs that name them, and what --format says they are called.
type named struct {
	// names are what fields are called in the log, by our name.
	names map[string]string
	// first are the fields of the log's first lines.
	first []string
	// metadata is the one of them that holds what the filter keeps of a reply.
	metadata string
	// slots is where values go, by what fields are called in the log.
	slots map[string]int
}

// otlpTime is what OpenTelemetry calls the time.
const otlpTime = "timeUnixNano"

// otherNames are what Envoy Gateway, Istio and OpenTelemetry call what has another name here.
var otherNames = map[string][]string{
	fieldTime:      {"start_time", otlpTime},
	fieldStatus:    {"response_code"},
	fieldFlags:     {"response_flags"},
	":method":      {"method"},
	":path":        {"x-envoy-origin-path", "path"},
	":authority":   {"authority"},
	"user-agent":   {"user_agent"},
	FieldXFF:       {"x_forwarded_for"},
	"x-request-id": {"request_id"},
}

// learn takes in a field of the first lines.
func (f *named) learn(name string) {
	if !slices.Contains(f.first, name) {
		f.first = append(f.first, name)
	}
}

// calledIn returns what a field is called in the log, "" if it is not there.
func (f *named) calledIn(name string) string {
	if to, ok := f.names[name]; ok {
		return to
	}
	for _, other := range append([]string{name}, otherNames[name]...) {
		if slices.Contains(f.first, other) {
			return other
		}
	}
	if name == FieldMetadata {
		return f.metadata
	}
	return ""
}

func (f *named) fields() []string { return f.first }

// place says where values go.
func (f *named) place(l *layout) {
	f.slots = map[string]int{}
	for slot, name := range l.names {
		if key := f.calledIn(name); key != "" {
			f.slots[key] = slot
		}
	}
}

// check returns an error if --format names a field that is not there.
func (f *named) check() error {
	for name, field := range f.names {
		if !slices.Contains(f.first, field) {
			return fmt.Errorf("--format: %s=%s: the first lines have no such field: they have %s", name, field, strings.Join(f.first, ", "))
		}
	}
	return nil
}

// namesOf reads what --format says after json or csv: name=field, apart by spaces.
func namesOf(renamings []string) (map[string]string, error) {
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
