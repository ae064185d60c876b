// Package server is the wire: it answers envoy.service.ratelimit.v3 requests
// over gRPC and HTTP, with health, reflection, a debug listener and metrics.
//
// A request takes one straight line through [Service.Answer], a function from
// request bytes to reply bytes that any transport can carry:
//
//	bytes --decode--> descriptors.Request --Plan--> limiter.Batch
//	      --Decide--> decisions --reply--> statuses, headers, metadata --encode--> bytes
//
// The decoder and encoder are written by hand against the proto's field numbers
// (named where they are used), because generated protobuf code costs several
// times the whole decision; a differential fuzz test holds them to protobuf's
// own. Nothing on that line allocates once a [Call] has grown, takes a lock or
// reads the clock twice.
//
// Rules are an immutable value behind one pointer, loaded once per request;
// [Service.Serve] swaps it.
package server
