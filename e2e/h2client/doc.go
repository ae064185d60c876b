// Package h2client is the client's side of HTTP/2 and gRPC for tests, over any [net.Conn]. It verifies
// that the server answers each call at most once, and no others. Its users decide when PINGs are
// acknowledged and how much the server may send. It waits only in channels and condition variables,
// so that it can be used in a bubble of testing/synctest.
package h2client
