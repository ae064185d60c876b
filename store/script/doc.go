// Package script encodes charges as runs of a Lua script, or as native commands of Redis, and
// decodes the replies.
//
//	Call      charges of one request and, after the reply, the states     call.go, encode.go, native.go
//	          that they found
//	Run       calls of one message, and the reply                         run.go, reply.go
//	Unsynced  hits of one counter that were admitted without the store    unsynced.go
//
// decide.lua decides charges; algorithms.lua has the algorithms, and companions.lua reservations
// and penalties. sync.lua charges unsynced hits. Both begin with counters.lua, which handles times
// and reads and writes counters. The documentation of package store has the format of the keys.
//
// A script blocks its server, so every call has a cost, an estimate of how long it takes there
// (cost.go). Callers keep runs below a millisecond.
//
// Lua's numbers are doubles. So times are pairs of seconds and nanoseconds, and hits are capped at
// 2^33.
//
// Calls and runs reuse their memory, and belong to one goroutine at a time. Only the Run methods of
// scripts and [AcquireLeaderships] wait for the server.
package script
