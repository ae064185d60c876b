// Package answer turns the bytes of a RateLimitRequest into those of a RateLimitResponse.
//
// The reply of [Service.Answer] depends only on the time, the request, the counters and the active
// rules. [Service.Begin] does the work up to the decision, and [Service.Finish] the rest. In
// between, a shared store may decide asynchronously, without blocking a goroutine. An [Exchange]
// contains the memory of both steps. Once it has grown, answering allocates only metadata of rules.
//
//	decode.go     bytes to entries, which are views of the bytes, within bounds.go
//	answer.go     entries to charges, by package descriptors, and the decision, by a Decider
//	status.go     decisions to the status of each descriptor
//	count.go      metrics of rules
//	leases.go     leases that a request acquires and returns, for package leases
//	encode.go     statuses and headers to bytes
//	metadata.go   dynamic metadata of a reply, as a Struct (structs.go)
//
// A [Handler] is the interface for transports and /json. It converts errors to gRPC statuses,
// counts, recovers from panics, and adds decisions to spans and logs. [Service.Activate] replaces
// the active rules, which a request loads once. Package admin reads the rules and their counters
// through [Service.Active] (lookup.go).
package answer
