// Package resp encodes commands and decodes replies of RESP2, the protocol of Redis and Valkey. It opens no connection, reads no
// clock and starts no goroutine.
//
// A server may be malicious, so a reply takes no more memory than its [Limits] allow: nothing is allocated for announced lengths,
// arrays are nested at most eight deep, and an error quotes the invalid bytes. Decoding takes time in proportion to the
// bytes, whatever their pieces.
//
// The protocol: https://redis.io/docs/latest/develop/reference/protocol-spec/ and
// https://valkey.io/topics/protocol/.
package resp
