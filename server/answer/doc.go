// Package answer turns the bytes of a RateLimitRequest into those of a RateLimitResponse.
//
// [Service.Answer] is a function of the time, the request and the rules in force. Its halves are
// [Service.Begin], up to the decision, and [Service.Finish], from it on: a shared store decides in between,
// and nobody waits for that. An [Exchange] is the memory of both, and nothing allocates once it has grown.
//
//	decode.go     bytes to entries, as views of the bytes, within bounds.go
//	answer.go     entries to charges, by package descriptors; the decision, by a Decider
//	status.go     decisions to the status of each descriptor
//	count.go      the metrics of the rules
//	leases.go     the leases that a request takes and returns, for package leases
//	encode.go     statuses and headers to bytes
//	metadata.go   what metadata says of a request, as a Struct (structs.go)
//
// A [Handler] is what transports and /json call. It gives errors their gRPC statuses, counts, recovers from
// panics, and tells spans and logs of decisions. [Service.Serve] swaps the rules, which are behind one pointer:
// a request loads it once. Package admin shows the rules and their counters to operators by [Service.Active] (look.go).
package answer
