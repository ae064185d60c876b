// Package transport has the configuration of a transport of gRPC and the bounds on what a client may cost, and what
// surrounds the calls of services other than RateLimitService.
//
// Package builtin is the built-in transport, and package grpcgo a conventional server of grpc-go, which enforces fewer of the
// bounds; docs/threats.md lists those. Each is made from a [Config], and neither knows the other.
package transport
