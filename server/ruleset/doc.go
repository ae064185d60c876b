// Package ruleset activates the rules and the rows of tables that sources have read, in a service
// that answers requests. It logs and counts what it activates or rejects.
//
// Rules and rows that were read at the same time are activated at the same time, so that a request
// is decided by all of them or by none. If one of them fails to load, or they do not fit each
// other, none is activated. Those that loaded wait until a later change makes it possible to
// activate them.
package ruleset
