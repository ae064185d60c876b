// Package guard bounds what an HTTP/2 client can make a grpc-go server do and
// hold, where grpc-go itself sets no bound. It wraps each connection, inside TLS,
// and finds the frames in what is read and written: nine bytes of each, without a
// copy of the rest.
//
// It bounds four things.
//
//   - Odd acts: frames that ask for nothing, and streams that the server had to
//     reset. A connection has a budget of them, which time and ordinary calls
//     refill; see budget.
//   - Memory of requests that are on their way, of all connections together; see
//     [Guard]. Beyond it, the connection that holds the most is closed.
//   - How many requests larger than 4 KiB a connection may send at once. The
//     others wait for their window; see windows.
//   - Streams that a client resets as fast as it opens them: the reader yields to
//     other goroutines; see conn.Read.
//
// A guard never answers a call and never alters what a client sends. It tells the
// client a smaller first window than grpc-go has, makes up for it later, and delays
// WINDOW_UPDATE frames of the server. A connection is closed only for what its own
// client did.
package guard
