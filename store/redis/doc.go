// Package redis is a client of one server of Redis or Valkey, a Sentinel or a node of a cluster.
//
// A [Server] has an address, a user, a password and certificates, as parsed by [ParseURL]. A [Conn]
// is a connection. A caller adds commands to an [Exchange], which is sent in one write, and waits
// for all of its replies. Several callers may wait at once: replies come in the order of the
// commands. One goroutine reads them, and it ends with the connection.
//
// Calls have no deadline. [Conn.Close] fails all of them, and [Conn.Within] closes the connection
// after a timeout.
//
// The caller bounds the size of each reply: see package resp. A message that is not a reply closes
// the connection. So a malicious server can only break its own connection, and use memory up to the
// bound.
//
// Every error has a [Kind], for metrics and for the operator: see [KindOf].
//
// The package does not reconnect, and knows neither counters nor other primaries.
package redis
