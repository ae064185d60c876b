package api

import (
	_ "embed" // for schema.txt
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// schema has a paragraph for each message on which limiting depends, and for each enum of their fields. The first line
// of a message has its name and its required oneofs; that of an enum starts with "enum". Then there is a line for each
// field: its name, its type with the prefix [] for a list or {} for a map, |oneof, and "required" if Envoy rejects a
// message without the field. The name of a type in the same package starts with a dot. Each value of an enum is
// followed by its number. Protobuf's well-known types have no package, and other messages are written as Struct.
//
//go:embed schema.txt
var schema string

// paragraphs are the paragraphs of the schema by the names of messages and enums.
var paragraphs = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, text := range []string{schema, containers} {
		for p := range strings.SplitSeq(text, "\n\n") {
			p = strings.TrimSpace(p)
			head, _, _ := strings.Cut(p, "\n")
			name, _, _ := strings.Cut(strings.TrimPrefix(head, "enum "), " ")
			all[name] = p
		}
	}
	return all
})

// message is a message of Envoy's API.
type message struct {
	name   string
	fields []*field
	// byName indexes the fields by their protobuf and JSON names.
	byName map[string]*field
	// oneofs are the oneofs of which one field must be set.
	oneofs []string
	// open is true if the message may have unknown fields.
	open bool
}

// field is a field of a message.
type field struct {
	name string
	// typeName is a protobuf scalar type, or the name of a message or an enum.
	typeName      string
	isList, isMap bool
	oneof         string
	// required is true if Envoy rejects a message without the field.
	required bool
	// values are the values of an enum.
	values []enumValue
}

// enumValue is a value of an enum.
type enumValue struct{ name, number string }

// messages are the messages of the schema by name.
var messages = sync.OnceValue(func() map[string]*message {
	all := map[string]*message{}
	for name, text := range paragraphs() {
		if !strings.HasPrefix(text, "enum ") {
			all[name] = parseMessage(text)
		}
	}
	for patch, name := range patchMessages {
		all[patch] = all[name]
	}
	return all
})

func parseMessage(text string) *message {
	head, lines, _ := strings.Cut(text, "\n")
	words := strings.Fields(head)
	m := &message{name: words[0], byName: map[string]*field{}}
	for _, word := range words[1:] {
		if word == "..." {
			m.open = true
		} else {
			m.oneofs = append(m.oneofs, word)
		}
	}
	for line := range strings.SplitSeq(lines, "\n") {
		if line == "" {
			continue
		}
		f := parseField(line, packageOf(m.name))
		m.fields = append(m.fields, f)
		m.byName[f.name], m.byName[camelCase(f.name)] = f, f
	}
	return m
}

func parseField(line, pkg string) *field {
	words := strings.Fields(line)
	f := &field{name: words[0], typeName: words[1]}
	if rest, ok := strings.CutPrefix(f.typeName, "[]"); ok {
		f.isList, f.typeName = true, rest
	} else if rest, ok := strings.CutPrefix(f.typeName, "{}"); ok {
		f.isMap, f.typeName = true, rest
	}
	if strings.HasPrefix(f.typeName, ".") {
		f.typeName = pkg + f.typeName
	}
	if strings.HasPrefix(paragraphs()[f.typeName], "enum ") {
		f.values = enumOf(f.typeName)
	}
	for _, word := range words[2:] {
		if oneof, ok := strings.CutPrefix(word, "|"); ok {
			f.oneof = oneof
		} else {
			f.required = true
		}
	}
	return f
}

// enumOf returns the values of an enum.
func enumOf(name string) (values []enumValue) {
	_, lines, _ := strings.Cut(paragraphs()[name], "\n")
	for line := range strings.SplitSeq(lines, "\n") {
		words := strings.Fields(line)
		values = append(values, enumValue{words[0], words[1]})
	}
	return values
}

// packageOf returns the package of a message: the part before the first capitalized name.
func packageOf(name string) string {
	for i := range len(name) - 1 {
		if name[i] == '.' && 'A' <= name[i+1] && name[i+1] <= 'Z' {
			return name[:i]
		}
	}
	return ""
}

// camelCase returns the JSON name of a field.
func camelCase(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		if b.Len() > 0 && part != "" {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		b.WriteString(part)
	}
	return b.String()
}

// Release is a minor version of Envoy: 40 is 1.40.
type Release uint64

// schemaRelease is the release described by schema.txt.
const schemaRelease Release = 40

// String formats the release as 1.40.
func (r Release) String() string { return "1." + strconv.FormatUint(uint64(r), 10) }

// VersionOf returns the release and the patch in the user agent of a node, or 0.
func VersionOf(n *tree.Node) (r Release, patch uint64) {
	version := n.At("user_agent_build_version", "version")
	if version.Field("major_number").Uint(0) != 1 {
		return 0, 0
	}
	return Release(version.Field("minor_number").Uint(0)), version.Field("patch").Uint(0)
}
