package answer

import (
	"context"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Active is the active rules with the counts of their requests, for package admin. [Active.Look] and [Active.LookAt] reach
// their counters.
type Active struct {
	Set      *descriptors.Set
	Since    time.Time             // when the rules were activated
	Counters *telemetry.Configured // of Set.Limits, in their order
	Live     []*live.Domain        // of Set.Domains(), in their order

	service *Service
	rules   *serving
}

// Active returns the active rules, or an error if there are none.
func (s *Service) Active() (*Active, error) {
	r := s.rules.Load()
	if r == nil {
		return nil, errNoRules
	}
	return &Active{Set: r.set, Since: r.since, Counters: r.counters, Live: r.live, service: s, rules: r}, nil
}

// A Look looks up or resets counters. One goroutine uses it at a time.
type Look struct {
	// Plan has a charge of no hits for each counter, and after [Look.Decide] a decision that says what the counter holds.
	Plan    *descriptors.Plan
	service *Service
	x       Exchange
}

// Look returns a look at the counters of a descriptor. It has no charge if no limit applies.
func (a *Active) Look(domain string, d descriptors.Descriptor) *Look {
	d.HasHits, d.Hits = true, 0
	l := a.newLook()
	l.x.rules = a.rules
	l.x.decoder.req = descriptors.Request{Domain: []byte(domain), Descriptors: []descriptors.Descriptor{d}}
	a.service.planRequest(&l.x, descriptors.Global{ReadOnly: true}, lookBudget)
	return l
}

// LookAt returns a look at the counter of a charge in the given domain of Set.Domains(). With a store, it has the given name.
func (a *Active) LookAt(domain int, c limiter.Charge, name []byte) *Look {
	l := a.newLook()
	b := &l.Plan.Batch
	b.Charges = append(b.Charges, c)
	b.Partition, b.Clock, b.Budget = a.rules.partitions[domain], a.service.now, lookBudget
	l.Plan.Names = append(l.Plan.Names, name)
	return l
}

// lookBudget is the longest time that any limit holds a reply.
const lookBudget = time.Minute

func (a *Active) newLook() *Look {
	l := &Look{service: a.service}
	l.Plan = &l.x.plan
	return l
}

// Decide looks the counters up at the time now. It changes none, and an absent one stays absent.
func (l *Look) Decide(now limiter.Time) error {
	return l.x.await(l.service.decide(now, &l.x, l.x.waiting()))
}

// Reset resets the counter of charge i at the time now, and returns the hits that it had used.
func (l *Look) Reset(ctx context.Context, now limiter.Time, i int) (used uint64, err error) {
	used, err = l.service.decider.Reset(ctx, now, &l.Plan.Batch, l.Plan.Names, i)
	if c := &l.Plan.Batch.Charges[i]; err == nil && c.Policy.UsesLeases() {
		l.service.leases.Forget(c.ID)
	}
	return used, NotDecided(err)
}

// Held returns the hits that requests hold under leases on the counter of charge i. It is nil for limits that give none,
// and if a store has the counters.
func (l *Look) Held(now limiter.Time, i int) *limiter.LeaseStats {
	m, ok := l.service.decider.(memory)
	if !ok || !l.Plan.Batch.Charges[i].Policy.UsesLeases() {
		return nil
	}
	held := m.LeaseStats(now, &l.Plan.Batch, i)
	return &held
}
