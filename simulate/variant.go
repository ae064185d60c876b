package simulate

import (
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/heap"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// variant is a set of rules and the state of its simulation.
type variant struct {
	name    string
	set     *descriptors.Set
	table   *limiter.Table
	plan    descriptors.Plan
	tally   *tally
	maxWait time.Duration
	// denied counts the denied requests, and unknownDomain the calls to domains without rules.
	denied, unknownDomain uint64
	// exempt counts the calls that each item of exempt lets pass.
	exempt map[*descriptors.Exemption]uint64
	// leases are those of running requests; the first one ends first. endBatch is scratch for releasing
	// one.
	leases   heap.Heap[lease]
	endBatch limiter.Batch
	// onlyDenied counts the requests that this variant denies and the first rules admit, and
	// onlyAdmitted the opposite.
	onlyDenied, onlyAdmitted uint64
}

// defaultMemory is the default bound of all counters, allocated on demand.
const defaultMemory = 4 << 30

func newVariant(set *descriptors.Set, name string, o *Options) (*variant, error) {
	table, err := newTable(o, 1+len(o.Against)) // equal shares of the memory
	return &variant{
		name: name, set: set, table: table, tally: newTally(set, o.ShowValues), maxWait: o.Timeout, exempt: map[*descriptors.Exemption]uint64{},
	}, err
}

// newTable returns a counter table that has one of several shares of the memory.
func newTable(o *Options, shares int) (*limiter.Table, error) {
	bytes := min(max(limiter.MinBytes, o.Memory/int64(shares)), limiter.MaxBytes)
	return limiter.New(limiter.Options{Bytes: bytes})
}

// decide decides a call and reports whether it is denied.
func (s *variant) decide(at limiter.Time, duration time.Duration, req *descriptors.Request) bool {
	s.endRequests(at)
	s.set.Plan(&s.plan, req, descriptors.Global{Starts: true}) // the logged hits are the final cost
	if !s.plan.KnownDomain {
		s.unknownDomain++
	}
	if s.plan.Exempt != nil {
		s.exempt[s.plan.Exempt]++
	}
	b := &s.plan.Batch
	b.Budget = s.maxWait
	s.table.Decide(at, b)
	if s.plan.Leases {
		s.addLeases(at + limiter.Time(duration))
	}
	s.tally.addCharges(req, &s.plan)
	return b.Denied
}

// checkEvicted returns an error if a counter was evicted, because decisions could then differ from
// the service's.
func checkEvicted(t *limiter.Table) error {
	if n := t.Stats().Evicted; n > 0 {
		return fmt.Errorf("%d counters were evicted because memory is full, so decisions would differ from the service's; raise --counter-memory", n)
	}
	return nil
}
