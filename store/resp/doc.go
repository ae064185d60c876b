// Package resp reads and writes RESP2, the protocol of Redis and Valkey: commands as bytes, and bytes as
// replies. It opens no connection, reads no clock and starts no goroutine.
//
// A server may be anybody's, so a reply takes no more memory than its [Limits] allow: nothing is
// allocated for a length that is only announced, arrays lie eight deep in one another at most, and
// an error says what came. A reply that is within its bounds costs time in proportion to its bytes,
// in whatever pieces they come.
//
// The protocol: https://redis.io/docs/latest/develop/reference/protocol-spec/ and
// https://valkey.io/topics/protocol/.
package resp
