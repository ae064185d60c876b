package rulefile

import (
	_ "embed" // the schema is a file, for editors to use from the repository too
	"slices"
)

//go:embed schema.json
var schemaJSON []byte

// Schema returns the JSON Schema (draft-07, which editors' YAML plugins support best) of one
// document of rules. It is stricter than [Parse]: it does not allow fields without effect.
func Schema() []byte { return slices.Clone(schemaJSON) }
