// Package h2 is the server's side of one HTTP/2 connection that carries gRPC: bytes in, bytes out.
//
// A [Conn] is fed with what a client sent and appends what the client is to get. It starts no
// goroutine, reads no clock and does no I/O: the time is an argument. So all that a connection does
// is a function of its bytes and times, which tests compare with other implementations and fuzz. The
// package imports nothing but the standard library.
//
// A call whose path is known is given to the [Handler] as soon as its request is whole, and is
// usually answered before the next frame is looked at. A request in one DATA frame is then a view of
// the bytes that were read: nothing is copied, allocated or looked up. A handler may also answer
// later, by [Conn.Reply] or [Conn.Fail], in any order.
//
// What holds:
//
//   - Whatever a client sends, a connection holds no more than [Server.MostHeld].
//   - Each call is answered or reset once, and an end client's input that is too large costs that
//     call alone. Frames that ask for nothing have a budget; beyond it, the connection ends.
//   - Each header block is decoded to its end, those of rejected calls too: otherwise client and
//     server would disagree about the header table.
//
// Section numbers are those of RFC 9113 (HTTP/2), and of RFC 7541 (HPACK) where that is named.
//
// A Conn has no lock. Its methods, and those of its [Handler] that it calls, run in one goroutine at
// a time.
package h2
