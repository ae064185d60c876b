// Package grpcgo carries gRPC with a conventional server of grpc-go, for operators whose clients do not work with
// the built-in transport.
//
// A codec passes rate-limit requests and reports of quotas through as bytes, so that packages answer and rlqs decode
// them as they do over the built-in transport: replies, errors and metrics of requests are the same. Bounds are those that
// grpc-go has. docs/threats.md lists the bounds of the built-in transport that are not enforced here.
package grpcgo
