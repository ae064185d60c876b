// Package script has charges in the words of Redis: as runs of a script, or as commands that need none.
//
//	Call     the charges of one request, and when the reply has come, what they found      call.go, native.go
//	Run      calls of one message, and its reply                                           run.go, reply.go
//	Debt     what one counter is owed that was charged elsewhere                           debt.go
//
// decide.lua decides charges, by algorithms.lua and what is beside counters in companions.lua; sync.lua charges debts. Both
// begin with counters.lua, which knows times, and which values of keys are a counter's. What is in a key is in package
// store's documentation.
//
// A script blocks its server, so every call has a cost, an estimate of how long it takes there: cost.go. Whoever makes
// runs keeps them below a millisecond.
//
// Lua's numbers are doubles. So times are seconds and nanoseconds apart, and hits are cut to 2^33.
//
// Calls and runs keep their memory for the next use, and belong to one goroutine at a time. Nothing here waits
// but [script.Run], for the server.
package script
