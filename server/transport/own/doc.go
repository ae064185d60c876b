// Package own is sluice's own transport of gRPC: connections of package h2, which is a function of bytes and
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
// Nothing in a turn waits for anything but the socket, and a write that has to wait gives the connection's
// ticket back (socket.go). A panic in a turn costs the connection, and in a request that request alone.
package own
