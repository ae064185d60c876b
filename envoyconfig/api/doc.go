// Package api judges whether a tree of fields is a message of Envoy's API, as Envoy 1.40 takes it.
//
// The messages are in schema.txt, which go generate writes from the descriptors of go-control-plane and the rules of
// protoc-gen-validate in them: fields and their types, oneofs, required fields, ranges and lengths, enums, and the fields
// that Envoy rejects as deprecated. A message is parsed when the first one is judged. Rules that Envoy has only in its code
// are functions by message (semantics.go).
package api

//go:generate go test -run TestSchemaIsCurrent -update .
