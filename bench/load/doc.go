// Package load drives an Envoy rate-limit service, any implementation of
// envoy.service.ratelimit.v3, with ShouldRateLimit calls. It measures throughput, latency and,
// because client and server usually share a machine, the server's CPU time per call.
//
// Closed loop: each of InFlight workers has one call in progress. This measures the maximum
// throughput, and the cost under load.
//
// Open loop: calls are due at fixed times, regardless of earlier calls, and latency is measured
// from the due time. So the delays of a stalled server count, while a closed loop would not have
// made these calls.
package load
