// Package h2 is the server side of an HTTP/2 connection that carries gRPC: bytes in, bytes out.
//
// A [Conn] is fed with the bytes that a client sent, and appends the bytes to send. It starts no
// goroutine, reads no clock and does no I/O: the time is an argument. Its behavior is therefore a
// function of bytes and times, which tests compare with other implementations and fuzz. Of other
// modules it imports only x/net's package hpack, for two tables of HPACK.
//
// A call of a known method is passed to the [Handler] as soon as its request is complete, and is
// usually answered before the next frame is parsed. If the request is in one DATA frame, its
// message is a view of the input: nothing is copied or allocated. A handler may also answer later,
// with [Conn.Reply] or [Conn.Fail], in any order.
//
// Invariants:
//
//   - Whatever a client sends, a connection uses at most [Server.MaxMemoryBytes].
//   - Each call is answered or reset exactly once, and an end client's oversized input affects only
//     its own call. Glitches have a budget, beyond which the connection is closed; see glitches.go.
//   - Each header block is decoded completely, even if the call is rejected. Otherwise the header
//     tables of client and server would differ.
//
// Section numbers refer to RFC 9113 (HTTP/2), or to RFC 7541 (HPACK) if that is named.
//
// A Conn is not safe for concurrent use. It calls the methods of its [Handler] from its own
// methods.
package h2
