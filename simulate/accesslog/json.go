package accesslog

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/simulate/jsonview"
)

// jsonFormat is lines of JSON objects.
type jsonFormat struct {
	named
	// metadata are those of the fields that hold what the filter keeps of a reply.
	metadata []string
	wanted   []wantedKey
}

// wantedKey is a key of the log and where its value goes.
type wantedKey struct {
	key  string
	slot int
}

// otherNames are what Envoy Gateway and Istio call what has another name here.
var otherNames = map[string][]string{
	fieldTime:    {"start_time"},
	fieldStatus:  {"response_code"},
	fieldFlags:   {"response_flags"},
	":method":    {"method"},
	":path":      {"x-envoy-origin-path", "path"},
	":authority": {"authority"},
	"user-agent": {"user_agent"},
	FieldXFF:     {"x_forwarded_for"},
	"x-request-id": {
		"request_id",
	},
}

// calledIn returns what a field is called in the log, "" if it is not there.
func (f *jsonFormat) calledIn(name string) string {
	if to := f.named.calledIn(name); to != "" || name != FieldMetadata || len(f.metadata) == 0 {
		return to
	}
	return f.metadata[0]
}

func (f *jsonFormat) has(name string) bool { return f.calledIn(name) != "" }

func (f *jsonFormat) use(l *layout) error {
	f.wanted = nil
	for slot, name := range l.names {
		if key := f.calledIn(name); key != "" {
			f.wanted = append(f.wanted, wantedKey{key, slot})
		}
	}
	return nil
}

// look learns the fields of a line.
func (f *jsonFormat) look(line []byte) error {
	s := jsonview.Scanner{Bytes: line}
	err := s.Object(func(key []byte) error {
		name := string(key)
		if !slices.Contains(f.first, name) {
			f.first = append(f.first, name)
		}
		value, _, err := s.Value(nil)
		if err == nil && isMetadata(value) && !slices.Contains(f.metadata, name) {
			f.metadata = append(f.metadata, name)
		}
		return err
	})
	if err == nil && s.Next() != 0 {
		return jsonview.ErrSyntax
	}
	return err
}

// keyOrder remembers which keys came in the last line, which usually come again.
type keyOrder struct {
	// keys are as they stand in the line, with quotes and colon.
	keys [][]byte
	// slots is parallel to keys: where the value goes, -1 for nowhere.
	slots []int
}

var errNoObject = errors.New("is no JSON object")

func (f *jsonFormat) read(line []byte, l *Line, request func() error) error {
	s := &jsonview.Scanner{Bytes: line}
	if s.Next() != '{' {
		return &LineError{s.At, errNoObject}
	}
	s.At++
	if s.Next() == '}' {
		s.At++
	} else if err := f.members(s, l); err != nil {
		return err
	}
	if s.Next() != 0 {
		return &LineError{s.At, jsonview.ErrSyntax}
	}
	return request()
}

func (f *jsonFormat) members(s *jsonview.Scanner, l *Line) error {
	for i := 0; ; i++ {
		slot, err := l.order.take(s, i, f.wanted)
		if err != nil {
			return &LineError{s.At, err}
		}
		if slot < 0 {
			err = s.Skip()
		} else {
			s.Next()
			column := s.At
			quoted := s.Next() == '"'
			var value []byte
			value, l.Scratch, err = s.Value(l.Scratch)
			if value != nil && (!quoted || string(value) != "-") {
				l.set(slot, column, value)
			}
		}
		if err != nil {
			return &LineError{s.At, err}
		}
		switch s.Next() {
		case ',':
			s.At++
		case '}':
			s.At++
			return nil
		default:
			return &LineError{s.At, jsonview.ErrSyntax}
		}
	}
}

// take takes the i-th key and its colon, and returns where its value goes.
func (o *keyOrder) take(s *jsonview.Scanner, i int, wanted []wantedKey) (slot int, err error) {
	s.Next()
	if i < len(o.keys) && bytes.HasPrefix(s.Bytes[s.At:], o.keys[i]) {
		s.At += len(o.keys[i])
		return o.slots[i], nil
	}
	from := s.At
	key, _, err := s.Quoted()
	if err == nil {
		err = s.Take(':')
	}
	if err != nil {
		return -1, err
	}
	slot = -1
	for _, w := range wanted {
		if w.key == string(key) {
			slot = w.slot
		}
	}
	if i < mostRemembered {
		for len(o.keys) <= i {
			o.keys, o.slots = append(o.keys, []byte{0}), append(o.slots, -1)
		}
		o.keys[i], o.slots[i] = bytes.Clone(s.Bytes[from:s.At]), slot
	}
	return slot, nil
}

// mostRemembered is how many keys of a line are remembered.
const mostRemembered = 256

// isMetadata reports whether a value is what the rate limit filter keeps of a reply.
func isMetadata(value []byte) bool {
	return len(value) > 0 && value[0] == '{' && bytes.Contains(value, []byte(`"domain"`)) && bytes.Contains(value, []byte(`"descriptors"`))
}

// fieldNames reads what --format says after json or csv: name=field, apart by spaces.
func fieldNames(words []string) (map[string]string, error) {
	names := map[string]string{}
	for _, word := range words {
		name, field, ok := strings.Cut(word, "=")
		if !ok || name == "" || field == "" {
			return nil, errors.New("--format: " + word + ": want NAME=FIELD, such as time=ts")
		}
		names[strings.ToLower(name)] = field
	}
	return names, nil
}
