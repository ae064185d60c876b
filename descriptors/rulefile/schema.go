package rulefile

import (
	_ "embed" // the schema is a file, for editors to use from the repository too
	"slices"
)

//go:embed schema.json
var schemaJSON []byte

// Schema returns the JSON Schema (draft-07, which the YAML plugins of editors know
// best) of one document of rules. It is stricter than [Parse] in one way: it lacks words
// that load without effect.
func Schema() []byte { return slices.Clone(schemaJSON) }
