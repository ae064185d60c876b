// The caller bounds the size of each reply: see package resp. A message that is not a reply closes
// the connection, unless [Conn.Listen] was called. So a malicious server can only break its own
// connection, and use memory up to the bound.
package redis
