// Package guard bounds what an HTTP/2 client can make a grpc-go server do and hold, where grpc-go
// itself sets no bound. It wraps each connection, inside TLS, and finds the frames in what is
// read and written. It keeps a frame's header of nine bytes and, of short frames, four more.
//
// It bounds four things.
//
//   - Odd acts: frames that ask for nothing, and streams that the server had to reset. A
//     connection has a budget of them, which time and ordinary calls refill; see budget. Beyond
//     it, the connection is closed.
//   - Memory of requests that are on their way, of all connections together; see
//     [Options].ParkedBytes. Beyond it, the connection that holds the most is closed.
//   - Requests larger than 4 KiB that a connection may send at once. The others wait for their
//     window; see windows. A client that sends more than its windows allow is closed.
//   - Streams that a client resets as fast as it opens them. The reader yields to other
//     goroutines; see conn.Read.
//
// A guard never answers a call and never alters what a client sends. Of what the server sends it
// changes two things: it tells the client a smaller first window than grpc-go has and adds the
// rest later, and it delays WINDOW_UPDATE frames. A connection is closed only for what its own
// client did.
package guard
