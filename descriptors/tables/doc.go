// Package tables stores numbers of limits by key, such as a row for each customer. A rule names a
// table, and the row of a request replaces the rule's own numbers.
//
// A [Table] is read without a lock while rows change. It finds rows by a keyed 128-bit hash of the
// values in their key columns and compares no keys: the key of the hash is random and never leaves
// the process, so two values of a client collide with a probability of at most 2^-118, see
// [identity.Hasher]. In addition to its key a row takes at most 64 bytes of memory, usually 57.
package tables
