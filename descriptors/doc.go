// Package descriptors compiles rules and finds the limits that apply to a request.
//
// Rules are a tree of descriptors for each domain. A source reads them into [rules.Config] values,
// from files (package rulefile) or over xDS (package xds). [Compile] turns these into a [Set], and
// [Set.Plan] turns a request into the charges that package limiter decides. Rules without sluice's
// own fields mean the same as in envoyproxy/ratelimit.
//
// # Matching
//
// Matching goes through the entries of a descriptor from left to right, one level of the tree for
// each. On a level it tries, in this order: the node with the entry's key and value, the first
// matching wildcard in file order, and the node with the key alone. The first match is final:
// matching does not backtrack. A limit applies only if the last entry matches its node.
// [Set.Explain] shows the steps.
//
// # Structure and cost
//
// A compiled level finds an entry's key, and then its value, in a hash table, or by a linear search
// if there are few. Each key has a list of the wildcards that can match it. So the cost of a
// request depends on its entries and the wildcards of their keys, but not on the number of rules.
// Matching and planning allocate nothing once a [Plan] has grown.
//
// # Identity
//
// A counter's identity is a keyed hash of the domain, the entries' keys and values as sent (at
// share_threshold levels the pattern instead of the value), the algorithm, the window and the
// number of sub-windows. It does not depend on the limit, its name, the file or the matching rule,
// so editing these keeps the counter.
package descriptors
