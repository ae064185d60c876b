// Package tree reads YAML and JSON as trees of fields with positions in their files.
//
// Fields are found by their protobuf names, even if they are written in camelCase. The package does not
// know Envoy's messages; see package api.
package tree
