// Package live records which keys are denied most at the moment, and which descriptors match no
// rule. It also defines the JSON of /api/v1/state, which the debug listener serves and sluice top
// shows.
//
// Only denied and unmatched requests are recorded. An admitted request costs nothing here; a denied
// one costs some tens of nanoseconds and does not allocate. Memory is bounded, whatever clients
// send.
//
// Denied keys are counted in a Space-Saving sketch with sets of eight, so that finding the smallest
// count of a full set reads one cache line. Counts restart every five seconds, so that past floods
// do not hide the current one. Rates are differences between values of metric counters. At most 64
// unmatched descriptors per domain are examined in a second.
package live
