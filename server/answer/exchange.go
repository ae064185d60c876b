package answer

import (
	"unsafe"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/leases"
)

// Exchange is a request's bytes that become a reply's bytes: neither becomes a protobuf message. It has the
// memory for that, and is used again for later requests. The zero value is ready. One goroutine uses it at a
// time.
type Exchange struct {
	// Request is memory of its owner's, for a request that is not a view of something else.
	Request []byte
	// Client is the one that sends the request. It is looked at only where [Settings].Allow is set.
	Client *access.Client
	// Connection and Stream are the connection and the call that take the leases of the request. Optional: without them,
	// leases are not revoked when the call is reset or the connection ends.
	Connection *leases.Connection
	Stream     uint32

	// Late says that the call's deadline has passed, so that only leases are taken back: nobody else ends them.
	Late bool

	decoder  decoder
	plan     descriptors.Plan
	statuses []descriptorStatus
	reply    []byte
	passed   []*object // the metadata of descriptors that passed
	metric   []byte    // a metric key made of runtime values
	lookup   []byte    // scratch for looking it up
	over     bool
	large    bool         // it answered a request of more than MostKept
	rules    *serving     // from Begin to Finish
	at       limiter.Time // of a request that has to do with leases

	service *Service // whose decider decides later
	// undecided is set while a decider may have plan.Batch and plan.Names.
	undecided bool
	decided   chan error // of a goroutine that waits for the decision; nil until one may
}

// Reply returns the reply of the last request that was answered without an error. It is a view of x's memory,
// valid until x is used again.
func (x *Exchange) Reply() []byte { return x.reply }

// OverLimit reports whether the last answer was OVER_LIMIT.
func (x *Exchange) OverLimit() bool { return x.over }

// MostKept is the largest request, in bytes, whose exchange is kept for later requests. Without it,
// a few large requests could in time make every pooled exchange large.
const MostKept = 8 << 10

// Kept reports whether x may be kept for another request: it is not large, and no store has it.
func (x *Exchange) Kept() bool { return !x.large && cap(x.Request) <= MostKept && !x.undecided }

// Undecided reports whether a decider may still have x, after a panic in [Handler.Begin] too.
func (x *Exchange) Undecided() bool { return x.undecided }

// Bytes returns the memory that x takes while its reply is held or a decider has it, with that of the decider. It is
// an estimate.
func (x *Exchange) Bytes() int {
	const (
		self       = int(unsafe.Sizeof(Exchange{})) + 512 // of a decider, for any request
		descriptor = int(unsafe.Sizeof(descriptors.Descriptor{}) + unsafe.Sizeof(descriptors.Match{}) + unsafe.Sizeof(descriptorStatus{}))
		entry      = int(unsafe.Sizeof(descriptors.Entry{}))
		charge     = int(unsafe.Sizeof(limiter.Charge{})+unsafe.Sizeof(limiter.Decision{})) + 512
	)
	p := &x.plan
	bytes := self + cap(x.Request) + cap(x.reply) + cap(p.Matches)*descriptor + cap(x.decoder.entries)*entry + cap(p.Batch.Charges)*charge
	for _, name := range p.Names {
		bytes += 3 * len(name) // of the plan, and of the decider
	}
	return bytes
}

// Decided implements [limiter.Waiter] for the goroutine that waits in [Service.Answer].
func (x *Exchange) Decided(err error) { x.decided <- err }

// waiting returns x as what waits for its own decision.
func (x *Exchange) waiting() limiter.Waiter {
	if x.decided == nil {
		x.decided = make(chan error, 1)
	}
	return x
}

// await waits for a decision that comes later, after begin has had it begun.
func (x *Exchange) await(done bool, err error) error {
	if done || err != nil {
		return err
	}
	err = <-x.decided
	x.undecided = false
	return NotDecided(err)
}
