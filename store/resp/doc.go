// Package resp encodes commands and decodes replies of RESP2, the protocol of Redis and Valkey. It
// opens no connection, reads no clock and starts no goroutine.
//
// A server may be malicious, so a reply takes no more memory than its [Limits] allow: memory grows
// with the received bytes, not with announced lengths; arrays are nested at most eight deep; and an
// error quotes only the first invalid bytes. Decoding takes time proportional to the number of
// bytes, even if they arrive one by one.
//
// The protocol: https://redis.io/docs/latest/develop/reference/protocol-spec/ and
// https://valkey.io/topics/protocol/.
package resp
