package answer

import (
	"context"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Active is a view of the active rules and the counts of their requests, for package admin.
// [Active.Lookup] and [Active.LookupCharge] look up counters.
type Active struct {
	Set      *descriptors.Set
	Since    time.Time             // time of activation
	Counters *telemetry.Configured // parallel to Set.Limits
	Live     []*live.Domain        // parallel to Set.Domains()

	service *Service
	rules   *activeRules
}

// Active returns the active rules, or an error if there are none.
func (s *Service) Active() (*Active, error) {
	r := s.rules.Load()
	if r == nil {
		return nil, errNoRules
	}
	return &Active{Set: r.set, Since: r.since, Counters: r.counters, Live: r.live, service: s, rules: r}, nil
}

// A Lookup reads or resets counters. One goroutine uses it at a time.
type Lookup struct {
	// Plan contains a charge of zero hits for each counter. [Lookup.Decide] adds decisions, which
	// describe the counters.
	Plan    *descriptors.Plan
	service *Service
	x       Exchange
}

// Lookup returns a lookup of the counters of the descriptors of a request. It has no charge if no
// limit applies.
func (a *Active) Lookup(domain string, all ...descriptors.Descriptor) *Lookup {
	for i := range all {
		all[i].HasHits = true
		all[i].Hits = 0
	}
	l := a.newLookup()
	l.x.rules = a.rules
	l.x.decoder.req = descriptors.Request{Domain: []byte(domain), Descriptors: all}
	a.service.planRequest(&l.x, descriptors.Global{ReadOnly: true}, lookupBudget)
	return l
}

// LookupCharge returns a lookup of the counter of a charge, whose domain is Set.Domains()[domain].
// Name is the counter's name in a store.
func (a *Active) LookupCharge(domain int, c limiter.Charge, name []byte) *Lookup {
	l := a.newLookup()
	b := &l.Plan.Batch
	b.Charges = append(b.Charges, c)
	b.Partition = a.rules.partitions[domain]
	b.Clock = a.service.now
	b.Budget = lookupBudget
	l.Plan.Names = append(l.Plan.Names, name)
	return l
}

// ReadUnreserved adds a second charge of zero hits for each counter with reservations: its decision
// describes the used hits without the reserved ones. It is called before [Lookup.Decide]. The result
// contains the index of the second charge for each charge, or -1.
func (l *Lookup) ReadUnreserved() []int {
	b := &l.Plan.Batch
	added := make([]int, len(b.Charges))
	for i, c := range b.Charges {
		added[i] = -1
		if c.Reserve {
			added[i] = len(b.Charges)
			c.Reserve = false
			b.Charges = append(b.Charges, c)
			if len(l.Plan.Names) > 0 {
				l.Plan.Names = append(l.Plan.Names, l.Plan.Names[i])
			}
		}
	}
	return added
}

// lookupBudget is the longest delay of a reply that any limit allows.
const lookupBudget = time.Minute

func (a *Active) newLookup() *Lookup {
	l := &Lookup{service: a.service}
	l.Plan = &l.x.plan
	return l
}

// Decide reads the counters at the time now. It neither changes nor creates a counter.
func (l *Lookup) Decide(now limiter.Time) error {
	return l.x.await(l.service.decide(now, &l.x, l.x.waiter()))
}

// Reset resets the counter of charge i at the time now and returns the hits that were used.
func (l *Lookup) Reset(ctx context.Context, now limiter.Time, i int) (used uint64, err error) {
	used, err = l.service.decider.Reset(ctx, now, &l.Plan.Batch, l.Plan.Names, i)
	if c := &l.Plan.Batch.Charges[i]; err == nil && c.Policy.UsesLeases() {
		l.service.leases.Forget(c.ID)
	}
	return used, WrapStoreError(err)
}

// Held returns the leases that requests hold on the counter of charge i. It returns nil if the
// limit grants no leases or the counters are in a store.
func (l *Lookup) Held(now limiter.Time, i int) *limiter.LeaseStats {
	m, ok := l.service.decider.(tableDecider)
	if !ok || !l.Plan.Batch.Charges[i].Policy.UsesLeases() {
		return nil
	}
	held := m.LeaseStats(now, &l.Plan.Batch, i)
	return &held
}
