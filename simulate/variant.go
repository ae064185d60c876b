package simulate

import (
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// variant is one set of rules and what it makes of the requests.
type variant struct {
	name    string
	set     *descriptors.Set
	tables  []*limiter.Table
	plan    descriptors.Plan
	tally   *tally
	maxWait time.Duration
	// denied counts the requests that are denied, and strange those calls of them whose
	// domain has no rules.
	denied, unknownDomain uint64
	// leases are leases of requests that have not ended, and ending gives one back.
	leases   leaseHeap
	endBatch limiter.Batch
	// more counts the requests that only these rules deny, and not those that they are compared
	// with, and fewer those that they alone admit.
	onlyDenied, onlyAdmitted uint64

	// division is nil unless Envoys divide limits.
	*division
}

// defaultMemory bounds all counters. Memory is taken as it is used.
const defaultMemory = 4 << 30

func newVariant(set *descriptors.Set, name string, o *Options) (*variant, error) {
	tables, err := newTables(o, 1+len(o.Against)+min(o.Envoys, 1))
	return &variant{name: name, set: set, tables: tables, tally: newTally(set, o.ShowValues), maxWait: o.Timeout}, err
}

// newTables returns the counters of all replicas for one of several rules.
func newTables(o *Options, sides int) (all []*limiter.Table, err error) {
	for range o.Replicas {
		table, err := limiter.New(limiter.Options{Bytes: min(max(limiter.MinBytes, o.Memory/int64(o.Replicas*sides)), limiter.MaxBytes)})
		if err != nil {
			return nil, err
		}
		all = append(all, table)
	}
	return all, nil
}

// decide decides a call, and reports whether it is denied.
func (s *variant) decide(at limiter.Time, lasts time.Duration, req *descriptors.Request, replica int) bool {
	if s.division != nil {
		var denied bool
		if req, denied = s.decideDivided(at, req); denied || len(req.Descriptors) == 0 {
			return denied
		}
	}
	s.endRequests(at)
	s.set.Plan(&s.plan, req, descriptors.Global{})
	if !s.plan.KnownDomain {
		s.unknownDomain++
	}
	b := &s.plan.Batch
	b.Budget = s.maxWait
	if s.plan.Leases {
		s.reserve()
	}
	s.tables[replica].Decide(at, b)
	if s.plan.Leases {
		s.addLeases(at+limiter.Time(lasts), replica)
	}
	s.tally.addCharges(req, &s.plan, replica)
	return b.Denied
}

// checkEvicted returns an error if a counter was given up for want of memory: decisions may
// differ from the service's then.
func checkEvicted(tables []*limiter.Table) error {
	for _, t := range tables {
		if n := t.Stats().Evicted; n > 0 {
			return fmt.Errorf("%d counters did not fit into memory, so that the result would not be what the rules say: raise --counter-memory", n)
		}
	}
	return nil
}
