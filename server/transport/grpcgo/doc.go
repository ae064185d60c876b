// Package grpcgo carries gRPC by grpc-go, for operators whose clients do not get on with sluice's own transport.
//
// A codec passes bytes through in place of messages, so that a request takes the way of package answer. What
// grpc-go itself does not bound is bounded here: headers by a tap, messages of other services by interceptors,
// gzip by a decompressor with tickets, and frames by package guard, around each connection.
package grpcgo
