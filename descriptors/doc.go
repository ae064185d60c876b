// Package descriptors compiles rules and matches requests: it says which requests are
// limited, and by what.
//
// Rules are a tree of descriptors for each domain. A source reads them into
// [rules.Config] values, from files (package rulefile) or over xDS (package xds).
// [Compile] turns all of them into a [Set], and [Set.Plan] turns a request into the
// charges that package limiter decides on. Rules without the words that sluice adds
// mean what they mean to envoyproxy/ratelimit.
//
// # Matching
//
// Matching walks the entries of a descriptor from left to right and goes down one level
// of the tree for each. On a level it tries three things in order: the node with the
// entry's key and value, the first wildcard in file order that fits, and the node with
// the key alone. The first match is final: matching never tries another branch. A limit
// applies only to the node that the last entry matches. [Set.Explain] shows the walk.
//
// # Structure and cost
//
// A compiled level finds an entry's key, and then its value, in a hash table, or by
// comparing all of them if there are few. Each key has a list of the wildcards that could
// fit, so wildcards of other keys cost nothing. The cost of a request thus depends on its
// entries and on the wildcards of their keys, but not on the number of rules. Matching
// and planning allocate nothing once a [Plan] has grown.
//
// # Identity
//
// A counter's identity is a keyed hash of the domain, the entries' keys and values as sent
// (at share_threshold levels the pattern in place of the value), the algorithm, the window
// and the number of sub-windows. The limit, its name and the file are not part of it, so
// editing them keeps the counter. Nor is the rule that a descriptor matched.
package descriptors
