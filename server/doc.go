// Package server is the wire: it answers envoy.service.ratelimit.v3 requests
// over gRPC and HTTP, with health, reflection, a debug listener and metrics.
//
// A request takes one straight line through [Service.Answer], a function from
// request bytes to reply bytes that any transport can carry. Nothing on that line takes a lock or
// reads the clock twice, and nothing allocates once a [Exchange] has grown.
//
// Rules are an immutable value behind one pointer. A request loads it once; [Service.Serve]
// swaps it.
package server
