// Package rules is what a source of rules says, before it is compiled: a [Config] for
// each domain, with its tree of descriptors and their limits, the [Defaults] for words
// that they lack, and the [Diagnostics] about both.
//
// Package rulefile reads it from YAML and package xds from protobuf. Package descriptors
// compiles it. What the words of a limit mean ([Limit.Policy]), and which of them do not
// fit together ([Limit.Mistakes]), stands here alone. So a rule has one meaning wherever
// it comes from.
package rules
