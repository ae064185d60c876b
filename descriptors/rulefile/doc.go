// Package rulefile reads rules, and defaults for them, from YAML.
//
// A file is walked as YAML nodes, not decoded into types, so that one reading finds
// all mistakes, each with its line and column. Values have the types that
// envoyproxy/ratelimit gives them, which are those of YAML 1.1.
//
// [Schema] describes the same files to editors.
package rulefile
