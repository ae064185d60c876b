// Package live keeps what operators ask for in the middle of an incident: which keys are denied
// most, now. It also has the words of /api/v1/state, which the debug listener answers and `sluice
// top` shows.
//
// Only denials feed it. A request that is admitted does nothing here, and a denied one costs some
// tens of nanoseconds and no allocation. Memory is bounded whatever clients send.
//
// The sketch is Space-Saving in sets of eight, so that the smallest count of a full set is found by looking at one
// cache line. Counts restart every five seconds, so that a flood of an hour ago does not hide the current one. Rates
// are differences of the counters of metrics. At most 64 descriptors without a rule are looked at in a second.
package live
