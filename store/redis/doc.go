// Package redis speaks to one server of Redis or Valkey, a Sentinel or a node of a cluster.
//
// A [Server] is what is needed to reach one: an address, a user, a password and certificates, as [ParseURL] reads
// them. A [Conn] is a connection. Whoever asks adds commands to an [Exchange], which goes out in one write, and
// waits for all of its replies. Several callers may wait at once: replies come in the order of the commands. One
// goroutine reads them, and it ends with the connection.
//
// No wait looks at a deadline. [Conn.Close] ends all of them, so whoever needs a bound closes: see [Conn.Within].
//
// Each reply is bounded before it is read, by what whoever asks expects of it: see package resp. What a server says
// unasked ends the connection, unless [Conn.Listen] waits for it. So a server that lies costs its connection, and no more
// memory than the bound.
//
// Every error has a [Kind], for metrics and for what an operator can do about it: [KindOf].
//
// This package does not connect again, and knows neither counters nor who else is a primary.
package redis
