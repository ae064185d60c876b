// Package load drives an Envoy rate-limit service, any implementation of
// envoy.service.ratelimit.v3, with ShouldRateLimit calls. It measures throughput,
// latency and, since client and server usually share one machine, what each call
// cost the server in processor time.
//
// Closed loop: each of InFlight workers keeps one call in flight.
// That finds what the service can do, and its cost when busy.
//
// Open loop: calls are due at fixed times, whatever became of those before, and latency
// counts from the due time. So a server that stalls pays for the calls that it held up. A
// closed loop would never have made these calls.
package load
