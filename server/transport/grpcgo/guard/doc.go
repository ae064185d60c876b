// Package guard bounds what an HTTP/2 client can make a grpc-go server do and hold, where grpc-go
// itself sets no bound. It wraps each connection, inside TLS, and finds the frames in what is
// read and written. It keeps a frame's header of nine bytes and, of short frames, four more.
//
// It bounds odd acts (see budget), memory of unfinished requests (see parked), large requests at a
// time (see windows), and streams that a client resets as fast as it opens them (see conn.Read).
//
// A guard never answers a call and never alters what a client sends. Of what the server sends it
// changes two things: it tells the client a smaller first window than grpc-go has and adds the
// rest later, and it delays WINDOW_UPDATE frames. A connection is closed only for what its own
// client did.
package guard
