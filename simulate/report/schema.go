package report

import (
	_ "embed" // also for programs that read it from the repository
	"slices"
)

//go:embed schema.json
var schemaJSON []byte

// Schema returns the JSON Schema (draft-07) of a report.
func Schema() []byte { return slices.Clone(schemaJSON) }
