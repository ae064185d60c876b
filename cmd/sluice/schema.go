package main

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

type schemaCmd struct {
	Kind string `arg:"" optional:"" enum:"rules,defaults,simulate" default:"rules" help:"Schema to print: rules, defaults (files of --defaults) or simulate (output of simulate --output json)."`
}

func (s schemaCmd) Run(c console) error {
	schema := rulefile.Schema()
	switch s.Kind {
	case "defaults":
		var err error
		if schema, err = rulefile.DefaultsSchema(); err != nil {
			return err
		}
	case "simulate":
		schema = report.Schema()
	}
	_, err := c.out.Write(schema)
	return err
}
