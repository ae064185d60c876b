// Package transport has the configuration and the limits of the gRPC transports, and the
// interceptors of services other than RateLimitService.
//
// Package builtin is the built-in transport, and package grpcgo a conventional grpc-go server,
// which enforces fewer limits; see docs/threats.md. Both are created from a [Config], and neither
// imports the other.
package transport
