// Package environment knows the variables of envoyproxy/ratelimit, and what each of
// them means to sluice.
//
// Its table has a row for each variable: the type and the default there, and the flag
// that it sets here, or why it sets none. The table reads the environment, writes the
// report at the start and the help, and docs/migrating.md.
//
// A variable that is set to nothing counts as unset, since manifests often leave such
// behind; envoyproxy/ratelimit does not start with an empty number or boolean.
package environment
