package api

import (
	_ "embed" // for schema.txt
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// schema has a paragraph for each message on which limiting depends: its name, and a line for each field with its name
// and its type, which has the prefix [] for a list or {} for a map. A type is the name of a message or of a [kind].
//
//go:embed schema.txt
var schema string

// field is the type of a field.
type field struct {
	typeName      string
	isList, isMap bool
}

// messages are the fields of each message by their protobuf names.
var messages = sync.OnceValue(func() map[string]map[string]field {
	all := map[string]map[string]field{}
	for paragraph := range strings.SplitSeq(schema, "\n\n") {
		message, lines, _ := strings.Cut(strings.TrimSpace(paragraph), "\n")
		all[message] = map[string]field{}
		for line := range strings.SplitSeq(lines, "\n") {
			name, typeName, _ := strings.Cut(line, " ")
			f := field{}
			typeName, f.isList = strings.CutPrefix(typeName, "[]")
			f.typeName, f.isMap = strings.CutPrefix(typeName, "{}")
			all[message][name] = f
		}
	}
	return all
})

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
