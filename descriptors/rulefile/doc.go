// Package rulefile reads rules and defaults from YAML.
//
// It reads a file as YAML nodes and does not decode it into types, so that it reports all mistakes
// at once, each with its line and column. Values have the types that envoyproxy/ratelimit gives
// them, those of YAML 1.1. [Schema] describes the files to editors.
package rulefile
