// Package environment maps the environment variables of envoyproxy/ratelimit to flags of sluice.
//
// Its table has a row for each variable: its type and default in envoyproxy/ratelimit, and the flag
// that it sets here, or why it sets none. The environment is read by this table, and the startup
// log, the help and docs/migrating.md are generated from it.
//
// An empty variable counts as unset, because manifests often contain empty ones.
// envoyproxy/ratelimit fails to start with an empty number or boolean.
package environment
