package main

import "github.com/sluice-ratelimit/sluice/descriptors/rulefile"

type schemaCmd struct {
	Kind string `arg:"" optional:"" enum:"rules,defaults" default:"rules" help:"rules, or defaults for files of --defaults."`
}

// Run prints the schema.
func (s schemaCmd) Run(c console) error {
	schema := rulefile.Schema()
	if s.Kind == "defaults" {
		var err error
		if schema, err = rulefile.DefaultsSchema(); err != nil {
			return err
		}
	}
	_, err := c.out.Write(schema)
	return err
}
