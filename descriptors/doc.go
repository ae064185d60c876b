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
// The entries of a descriptor are walked from left to right, a level of the tree
// each. On a level the rule with the entry's exact key and value wins; else the
// first wildcard in file order that fits; else the rule with the key alone. The
// first hit is final, there is no way back to another branch, and a rule counts
// only if it is reached by the last entry. [Set.Explain] shows the walk.
//
// # Structure and cost
//
// A compiled level finds an entry's key and then its value by a hash table, or by
// looking at all of them where there are few. The wildcards that could fit are
// listed with each key, so that those of other keys cost nothing. The cost of a
// request therefore does not depend on the number of rules, only on its entries
// and on the wildcards of the keys that it names. Matching and planning allocate
// nothing once a [Plan] has grown.
//
// # Identity
//
// A counter's identity is a keyed hash of the domain, the entries' keys and values
// as sent (at share_threshold levels the pattern in place of the value), the
// algorithm and the window (and a sliding window's number of sub-windows). It holds neither limit nor name nor file, so that
// editing those keeps the counters, and it does not matter which rule a
// descriptor matched.
package descriptors
