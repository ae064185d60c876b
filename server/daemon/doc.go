// Package daemon assembles a sluice: the table of counters, the state file, the shared store, the
// tables of limits, the rules, and the server. sluice serve and the simulation of the service
// (e2e/simulation) both use it, so that the simulation runs what operators run. Flags, signals and
// the sources of rules belong to the caller.
package daemon
