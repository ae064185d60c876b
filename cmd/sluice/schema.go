package main

import "github.com/sluice-ratelimit/sluice/descriptors"

type schemaCmd struct{}

// Run prints the schema.
func (schemaCmd) Run(c console) error {
	_, err := c.out.Write(descriptors.Schema())
	return err
}
