package report

import (
	_ "embed" // for programs that read reports, from the repository too
	"slices"
)

//go:embed schema.json
var schemaJSON []byte

// Schema returns the JSON Schema (draft-07) of a report.
func Schema() []byte { return slices.Clone(schemaJSON) }
