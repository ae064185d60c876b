package answer

import (
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/leases"
)

// Connect opens a connection of the client with the given name. Connections with the same name
// belong to the same client.
func (s *Service) Connect(client string) *leases.Connection { return s.leases.Connect(client) }

// ExpireLeases counts the leases that have expired.
func (s *Service) ExpireLeases() { s.leases.Expire() }

// recordLeases records the leases that x's decided request has acquired and returned.
func (s *Service) recordLeases(rules *activeRules, x *Exchange) {
	s.leases.RecordCall(x.Connection, x.time)
	for i := range x.plan.Matches {
		if lease := x.plan.Matches[i].Lease; lease > 0 {
			s.recordLeaseEnd(rules, x, i, lease)
		}
	}
	for i, at := range x.plan.AllLeases() {
		c := &x.plan.Batch.Charges[at]
		if c.Reserve {
			s.metrics.Leases.Reserved.Add(float64(c.Hits))
		}
		granted := leases.Lease{
			Key: x.leaseKey(at), Partition: x.plan.Batch.Partition,
			Counters: s.ruleCounters(rules, x, i, x.plan.Limits[at]), Table: x.plan.Limits[at].Table != nil,
			Connection: x.Connection, Stream: x.Stream, Expires: x.time + limiter.Time(c.Policy.LeaseLife()),
		}
		if s.decidesAsync {
			granted.Name = append([]byte(nil), x.plan.Names[at]...)
		}
		s.leases.Grant(x.time, &granted, c.Policy, &leases.Origin{
			Limit: x.plan.LeaseLimit(i, at), Domain: x.decoder.req.Domain, Descriptor: &x.decoder.req.Descriptors[i],
		})
	}
	if s.rules.Load() != rules {
		s.leases.ReviewCall(x.leaseKeys)
	}
}

// leaseKeys yields the keys of the leases that x's request has acquired.
func (x *Exchange) leaseKeys(yield func(leases.Key) bool) {
	for _, at := range x.plan.AllLeases() {
		if !yield(x.leaseKey(at)) {
			return
		}
	}
}

// leaseKey returns the key of the lease that charge at has acquired.
func (x *Exchange) leaseKey(at int) leases.Key {
	return leases.Key{ID: x.plan.Batch.Charges[at].ID, Number: x.plan.Batch.Lease(at)}
}

// recordLeaseEnd records the result of returning a lease with descriptor i of x's request.
func (s *Service) recordLeaseEnd(rules *activeRules, x *Exchange, i int, number uint64) {
	m := &s.metrics.Leases
	for at := range x.plan.ChargesOf(i) {
		if c := &x.plan.Batch.Charges[at]; c.Policy.UsesLeases() && x.plan.Batch.Decisions[at].Charged > 0 {
			s.leases.Return(x.Connection, leases.Key{ID: c.ID, Number: number})
			m.Done.Inc()
			counters := s.ruleCounters(rules, x, i, x.plan.Limits[at])
			counters.CountReturned()
			if c.Policy.Reserve != nil {
				counters.CountCostDue(false) // the stream has ended
				s.recordCost(x, at)
			}
			return
		}
	}
	if number > limiter.LastLease {
		m.Foreign.Inc()
		return
	}
	for at := range x.plan.ChargesOf(i) { // the counter may have been reset after the grant
		s.leases.Return(x.Connection, leases.Key{ID: x.plan.Batch.Charges[at].ID, Number: number})
	}
	m.Stale.Inc()
}

// recordCost records the hits that the returned lease of charge at had reserved, and the cost that
// was charged instead.
func (s *Service) recordCost(x *Exchange, at int) {
	reserved := x.plan.Batch.Decisions[at].Charged
	cost, known := x.plan.LeaseCost(at)
	if !known && !x.plan.Batch.Charges[at].Policy.Reserve.ReleasesWithoutCost() {
		cost = reserved
	}
	s.metrics.Leases.Settled.Add(float64(reserved))
	s.metrics.Leases.Cost.Add(float64(cost))
}

// recordCancellation records that the leases of x's request are about to be released.
func (s *Service) recordCancellation(x *Exchange) {
	for _, at := range x.plan.AllLeases() {
		if s.leases.Return(nil, x.leaseKey(at)) {
			s.metrics.Leases.Reset.Inc()
		}
	}
}

// planByActiveRules plans a request by the active rules, as a lookup that changes no counter. It
// returns the partition of the domain.
func (s *Service) planByActiveRules(p *descriptors.Plan, r *descriptors.Request) *limiter.Partition {
	rules := s.rules.Load()
	rules.set.Plan(p, r, descriptors.Global{ReadOnly: true, Rows: rules.rows})
	if i := p.DomainIndex; i >= 0 {
		return rules.partitions[i]
	}
	return nil
}

// TablesChanged reviews leases. It must be called after individual rows of tables have changed.
func (s *Service) TablesChanged() { s.updateRules(func(*activeRules) {}) }

// updateRules replaces the active rules by a changed copy, and reviews leases.
func (s *Service) updateRules(change func(*activeRules)) {
	for {
		old := s.rules.Load()
		if old == nil {
			return
		}
		// Requests that were planned with the old rules notice that the pointer has changed; see
		// recordLeases.
		r := *old
		change(&r)
		if s.rules.CompareAndSwap(old, &r) {
			s.leases.Review(false)
			return
		}
	}
}
