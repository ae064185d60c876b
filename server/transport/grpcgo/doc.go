// Package grpcgo is a conventional grpc-go server, for clients that are incompatible with the
// built-in transport.
//
// A codec passes rate-limit requests and quota reports through as bytes, so that packages answer
// and rlqs decode them as with the built-in transport: replies, errors and metrics of requests are
// the same. The limits are those of grpc-go. docs/threats.md lists the limits of the built-in
// transport that are not enforced here.
package grpcgo
