// Package api finds fields that Envoy's API does not have, and values of a wrong kind, in the messages on which limiting
// depends. Other messages can be anything. Envoy itself validates a configuration completely (envoy --mode validate).
//
// schema.txt describes the messages. go generate writes it from the descriptors of go-control-plane and their
// dependencies, in the versions pinned by go.mod.
package api

//go:generate go test -run TestSchemaIsCurrent -update .
