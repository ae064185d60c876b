// Package builtin is the built-in transport of gRPC: connections of package h2, which is a function of bytes and
// times, with sockets, goroutines and a clock.
//
// Each connection has one goroutine (serve.go). It reads, and takes turns (turn.go): it feeds h2 with what came,
// which answers most calls at once, and writes what came out with one call of the system. Whoever finishes a
// call later never waits for the client. It leaves the call in the connection's inbox (inbox.go): a store, the
// timer of a held reply (call.go), or a service that was written for grpc-go, whose calls have goroutines
// (bridged.go). Who finds the inbox empty starts a flusher, which takes turns until it is empty again.
//
//	calls         what h2 asks for: a rate-limit request to call.go, all else to bridged.go
//	connection    a socket, its turn, and what is known of the client
//	rateLimitCall a request with one owner: the pool, a turn, a store, a timer, the inbox, or its stream (call.go)
//	stored        the memory of calls that stores decide, for which connections wait (stored.go)
//	shared        what connections share: tickets, the memory that they may hold, the services
//	watched       when a client did something last; a Transport looks at that once a second
//
// # Fairness
//
// A turn processes at most 256 frames, 16 KiB of output, 8 KiB of header blocks, or 32 KiB of inflated messages. A
// connection with more work pauses for a microsecond, because Go's scheduler polls the network only when no goroutine
// is ready, or every 10 ms. Its next turn needs a ticket, of which there are as many as processors: without tickets,
// fifty hostile connections delayed most calls of a neighbor. A large compressed message needs a ticket too.
//
// # Bounds
//
// Unfinished requests, waiting and delayed replies, and calls in a store may take 96 MiB on all connections, less what
// the quota service holds. Beyond it, the connection that holds the most is closed. Closing a connection does not free
// the calls that a store has, so connections stop reading earlier: at 24 MiB of such calls those that have more than
// 64 KiB of them, at 48 MiB all (stored.go). At most 256 connections may wait for their clients to read, for 5 s each.
//
// # Time
//
// One goroutine looks at all connections once a second, or as often as the shortest configured time (watched.go). Only
// delayed replies have timers. A connection ends in two steps: GOAWAY with a PING; then, when the client has answered
// it or after five seconds, GOAWAY with the number of the last call that is answered. Envoy fails calls with higher
// numbers, so the second GOAWAY must not be sent before Envoy has processed the first.
//
// # Quota streams
//
// A report is decoded while it arrives, so it may have any size (quota.go). At most one message of a stream is in
// flight, and a newer action for a bucket replaces the one that waits. A PING follows each message; its
// acknowledgement confirms that Envoy has read everything before it. Streams that a client does not read are reset
// when the server drains.
//
// Nothing in a turn waits for anything but the socket, and a write that has to wait gives the connection's
// ticket back (socket.go). A panic in a turn costs the connection, and in a request that request alone.
package builtin
