package rulefile

import (
	_ "embed" // the schemas are files, for editors to use from the repository too
	"encoding/json"
	"errors"
	"slices"
)

var (
	//go:embed schema.json
	schemaJSON []byte
	// defaultsSchemaJSON refers to definitions of schemaJSON.
	//
	//go:embed schema_defaults.json
	defaultsSchemaJSON []byte
)

// Schema returns the JSON Schema (draft-07, which editors' YAML plugins support best) of one
// document of rules. It is stricter than [Parse]: it does not allow fields without effect.
func Schema() []byte { return slices.Clone(schemaJSON) }

// DefaultsSchema returns the JSON Schema (draft-07) of one document of defaults.
func DefaultsSchema() ([]byte, error) {
	var rules, defaults map[string]json.RawMessage
	err := errors.Join(json.Unmarshal(schemaJSON, &rules), json.Unmarshal(defaultsSchemaJSON, &defaults))
	if err != nil {
		return nil, err
	}
	defaults["definitions"] = rules["definitions"]
	schema, err := json.MarshalIndent(defaults, "", "  ")
	return append(schema, '\n'), err
}
