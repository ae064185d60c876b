// Package tree reads YAML and JSON as trees of fields with positions in their files.
//
// Fields are found by their protobuf names, also if they are written in camelCase. The package does
// not know any message; see package api.
package tree
