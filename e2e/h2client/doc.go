// Package h2client is the client's side of HTTP/2 and gRPC for tests, over any [net.Conn]. It verifies
// that the server answers each call at most once, and no others. It waits only in channels, so that it
// can be used in a bubble of testing/synctest.
package h2client
