// Package transport is what both transports of gRPC share: the bounds on what a client may cost, the calls of
// services other than RateLimitService, what a client of HTTP/1 gets, and decompression. So a bound, a metric
// and the words of an error are the same over either transport.
//
// Package own is sluice's own transport. Package grpcgo is the one to go back to. Each is made from a [Config],
// and neither knows the other.
package transport
