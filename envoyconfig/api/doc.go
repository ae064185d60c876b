// Package api validates trees of fields against the messages of Envoy's API, as Envoy 1.40 does.
//
// schema.txt describes the messages: fields and their types, oneofs, required fields, ranges and lengths, enums, and
// fields that Envoy rejects as deprecated. go generate writes it from the descriptors of go-control-plane and their
// protoc-gen-validate rules. A message is parsed on first use. Rules that exist only in Envoy's code are functions by
// message (semantics.go).
package api

//go:generate go test -run TestSchemaIsCurrent -update .
