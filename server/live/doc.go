// Package live keeps what operators ask for in the middle of an incident: which keys are denied
// most, now. It also has the words of /api/v1/state, which the debug listener answers and `sluice
// top` shows.
//
// Only denials feed it. A request that is admitted does nothing here, and a denied one costs some
// tens of nanoseconds and no allocation. Memory is bounded whatever clients send.
package live
