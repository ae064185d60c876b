// Package builtin is the built-in gRPC transport. It adds sockets, goroutines and a clock to
// package h2, which implements HTTP/2 as a function of bytes and times.
//
// Each connection has one goroutine (serve.go). It reads, and processes the input in batches
// (batch.go): it feeds h2, which answers most calls at once, and writes all output of a batch with
// one system call. Completions that arrive later are queued in the connection's mailbox
// (mailbox.go): the decision of a store, the timer of a delayed reply (call.go), or output of a
// service written for grpc-go, whose calls have goroutines (bridged_call.go). The goroutine that
// queues the first completion starts a flusher, which runs until the mailbox is empty. So the
// goroutines that complete calls never wait for a client.
//
//	connection     a socket, the mutex of its batches, and the client's identity
//	calls          a connection as h2.Handler; call.go has rate-limit requests, bridged_call.go others
//	rateLimitCall  a request; owned by the pool, a batch, a store, a timer, the mailbox or its stream
//	shared         the state that connections share: tokens, memory limits, services
//	storeMemory    the memory of calls pending in a store, for which connections wait
//	activity       the timestamps of a connection, which Transport.monitor checks once a second
//
// # Fairness
//
// A batch has at most 256 frames, 16 KiB of output or 8 KiB of header blocks. A connection with unprocessed input yields by sleeping for a microsecond,
// because Go's scheduler polls the network only when no goroutine is runnable, or every 10 ms. Its
// next batch needs a token, of which there is one per CPU: without tokens, fifty hostile
// connections delayed most calls of other clients. A write that has to wait releases the token
// (socket.go); batches wait for nothing else. Handshakes, health and reflection are tasks, which use
// the same tokens; see package cpu.
//
// # Limits
//
// Incomplete requests, unsent and delayed replies, and calls in a store may take 96 MiB on all
// connections, minus the memory of the quota service. Beyond that, the connection that buffers the
// most is closed (memory_budget.go). Closing a connection does not free its calls in a store, so
// connections stop reading earlier: at 24 MiB of such calls, those that have more than 64 KiB of
// them, and at 48 MiB all (store_memory.go). At most 256 connections may wait for their clients to
// read, for 5 s each.
//
// A panic in a batch closes the connection. A panic while a request is decided affects only that
// request.
//
// # Time
//
// One goroutine checks all connections once a second, or as often as the shortest configured time
// (activity.go). Only delayed replies have timers. A connection drains in two steps: GOAWAY with a
// PING; then, when the client has answered the PING or after five seconds, GOAWAY with the number
// of the last stream. Envoy fails calls with higher numbers, so the second GOAWAY must not be sent
// before Envoy has processed the first.
//
// # Quota streams
//
// A report is decoded while it arrives, so it may have any size (quota.go). At most one message of
// a stream is in flight, and a newer action for a bucket replaces a pending one. A PING follows
// each message; its acknowledgement confirms that Envoy has read everything before it. When the
// server drains, it resets streams that a client does not read.
package builtin
