// Package api validates trees of fields against the messages of Envoy's API on which limiting depends: names of fields,
// kinds of values, and required fields. It converts values that Envoy accepts in several forms to one. Envoy checks
// everything else itself, with --mode validate.
//
// schema.txt describes the messages. go generate writes it from the descriptors of go-control-plane and their
// protoc-gen-validate rules.
package api

//go:generate go test -run TestSchemaIsCurrent -update .
