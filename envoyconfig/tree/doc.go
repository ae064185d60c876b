// Package tree reads YAML and JSON as trees of fields, each of which has its place in a file.
//
// It walks fields by their names in protobuf, and finds their names in camelCase too. It knows no
// message: package api does.
package tree
