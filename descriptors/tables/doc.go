// Package tables keeps numbers of limits by key: a row for each customer, say. A rule names a
// table, and a request's row of it replaces the rule's own numbers.
//
// A [Table] is read without a lock while rows change. It finds rows by a keyed hash of 128 bits of
// the values in their key columns, and compares no keys: the key of the hash is random and never
// leaves the process, so that two values of a client have the same hash with a probability of no more than 2^-118,
// see [identity.Hasher]. A row takes at most 64 bytes in memory beside its key, 57 as a rule.
package tables
