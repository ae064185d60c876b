// Package luahost is a small Redis within the process, for tests. It runs sluice's own Lua scripts,
// on [github.com/yuin/gopher-lua], and the commands that package store sends, on any [net.Conn].
//
// It exists for simulations in a bubble of testing/synctest: it reads the time only from
// [time.Now], which is the bubble's clock there, and waits only in channels and connections. The
// result of a sequence of commands depends on the commands and the clock alone.
//
// A [Server] is one primary or replica. It runs one command at a time, as Redis does. A connection
// has one goroutine, which ends when the connection is closed. Commands of a connection that does
// not read its replies are not run.
//
// A [Cluster] divides the slots among servers, and a [Sentinel] names a primary. A differential test
// in package store compares the replies to sluice's commands with those of a real server, byte for
// byte. These are left out deliberately:
//
//   - commands, options, databases, passwords and Lua libraries that neither sluice nor the tests use
//   - replication, persistence and eviction: a test copies keys by [Server.Snapshot] and
//     [Server.Restore], and sets errors by [Server.SetError] and [Server.SetWriteError]
//   - the time that commands take: they take none
//   - bounds of scripts: one that does not end is not interrupted
//   - the slots of keys that a script accesses without naming them in KEYS
//   - the exact texts of Lua's own errors, and of numbers from 1e15 on that a script concatenates
//   - the order of the fields of a hash: it is sorted
package luahost
