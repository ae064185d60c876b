// Package rules has the types of rules before they are compiled: a [Config] for each domain with
// its tree of descriptors and limits, [Defaults] for fields that rules lack, and [Diagnostics]
// about both.
//
// Package rulefile reads rules from YAML and package xds from protobuf; package descriptors
// compiles them. The meaning of a limit's fields ([Limit.Policy]) and their conflicts
// ([Limit.Mistakes]) are defined here only, so a rule means the same whatever its source.
package rules
