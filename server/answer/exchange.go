package answer

import (
	"unsafe"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/leases"
)

// Exchange is the memory for answering one request at a time: decoder, plan, decisions and encoded
// reply. It can be reused for later requests. The zero value is ready. One goroutine uses it at a
// time.
type Exchange struct {
	// Request is a buffer for callers that have none for the request.
	Request []byte
	// Client sent the request. It is only used if [Settings].Allow is set.
	Client *access.Client
	// Connection and Stream identify the call, which acquires the leases of the request. Without
	// them, the leases are not revoked when the call is reset or the connection closes.
	Connection *leases.Connection
	Stream     uint32

	// DeadlinePassed is set if the call's deadline has passed. Then only returned leases are
	// processed, because no later call returns them.
	DeadlinePassed bool

	decoder     decoder
	plan        descriptors.Plan
	statuses    []descriptorStatus
	reply       []byte
	metricKey   []byte // scratch for a metric key with values of the request
	lookupKey   []byte // scratch for looking up metricKey
	body        []byte // body of a denial, and scratch after it
	named       []int  // charges that the structured headers describe
	overLimit   bool
	large       bool         // whether a request was larger than MaxReusableRequest
	quotaPasses bool         // a quota passes, but other limits deny the request
	rules       *activeRules // set from Begin to Finish
	time        limiter.Time // time of the request; only set if the plan involves leases or the rules notices

	service   *Service   // only set if its decider decides asynchronously
	undecided bool       // whether a decider may be using plan.Batch and plan.Names
	decided   chan error // receives the decision in [Service.Answer]; created by waiter
}

// Reply returns the reply to the last request that was answered without an error. It is valid until
// the next use of x.
func (x *Exchange) Reply() []byte { return x.reply }

// OverLimit reports whether the last answer was OVER_LIMIT.
func (x *Exchange) OverLimit() bool { return x.overLimit }

// MaxReusableRequest is the size in bytes of the largest request whose exchange is reused.
// Otherwise a few large requests could, over time, make all pooled exchanges large.
const MaxReusableRequest = 8 << 10

// Reusable reports whether x may be used for another request: it is not large, and no decider is
// using it.
func (x *Exchange) Reusable() bool {
	return !x.large && cap(x.Request) <= MaxReusableRequest && !x.undecided
}

// Undecided reports whether a decider may be using x. This is also valid after a panic in
// [Handler.Begin].
func (x *Exchange) Undecided() bool { return x.undecided }

// MemoryBytes estimates the memory in use while x waits for its decision or its reply is delayed,
// including the decider's.
func (x *Exchange) MemoryBytes() int {
	const (
		self       = int(unsafe.Sizeof(Exchange{})) + 512 // 512: memory of a decider per request
		descriptor = int(unsafe.Sizeof(descriptors.Descriptor{}) + unsafe.Sizeof(descriptors.Match{}) +
			unsafe.Sizeof(descriptorStatus{}))
		entry  = int(unsafe.Sizeof(descriptors.Entry{}))
		charge = int(unsafe.Sizeof(limiter.Charge{})+unsafe.Sizeof(limiter.Decision{})) + 512
	)
	p := &x.plan
	bytes := self + cap(x.Request) + cap(x.reply) + cap(x.body) + cap(p.Matches)*descriptor +
		cap(x.decoder.entries)*entry + cap(p.Batch.Charges)*charge
	for _, name := range p.Names {
		bytes += 3 * len(name) // copies of the plan and of the decider
	}
	return bytes
}

// Decided implements [limiter.Waiter] for a goroutine that blocks in [Service.Answer].
func (x *Exchange) Decided(err error) { x.decided <- err }

// waiter returns x as the waiter for its own decision.
func (x *Exchange) waiter() limiter.Waiter {
	if x.decided == nil {
		x.decided = make(chan error, 1)
	}
	return x
}

// await waits for the decision unless Begin, whose results are done and err, has completed it.
func (x *Exchange) await(done bool, err error) error {
	if done || err != nil {
		return err
	}
	err = <-x.decided
	x.undecided = false
	return WrapStoreError(err)
}
