package answer

import (
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/leases"
)

// Connect opens a connection of the client with the given name, whose calls take leases. Connections of one name are
// taken to be of one client.
func (s *Service) Connect(client string) *leases.Connection { return s.leases.Connect(client) }

// noteLeases notes the leases that x's request, decided, has taken and returned.
func (s *Service) noteLeases(rules *serving, x *Exchange) {
	s.leases.NoteCall(x.Connection, x.at)
	for i := range x.plan.Matches {
		if lease := x.plan.Matches[i].Lease; lease > 0 {
			s.noteEnd(x, i, lease)
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
			Connection: x.Connection, Stream: x.Stream, Expires: x.at + limiter.Time(c.Policy.LeaseLife()),
		}
		if s.later {
			granted.Name = append([]byte(nil), x.plan.Names[at]...)
		}
		s.leases.Grant(x.at, &granted, c.Policy, &leases.Origin{
			Limit: x.plan.LeaseLimit(i, at), Domain: x.decoder.req.Domain, Descriptor: &x.decoder.req.Descriptors[i],
		})
	}
	if s.rules.Load() != rules {
		s.leases.ReviewCall(x.leaseKeys)
	}
}

// leaseKeys yields the keys of the leases that x's request has taken.
func (x *Exchange) leaseKeys(yield func(leases.Key) bool) {
	for _, at := range x.plan.AllLeases() {
		if !yield(x.leaseKey(at)) {
			return
		}
	}
}

// leaseKey returns the key of the lease that charge at has taken.
func (x *Exchange) leaseKey(at int) leases.Key {
	return leases.Key{ID: x.plan.Batch.Charges[at].ID, Number: x.plan.Batch.Lease(at)}
}

// noteEnd notes what became of a lease that descriptor i of x's request has brought.
func (s *Service) noteEnd(x *Exchange, i int, number uint64) {
	m := &s.metrics.Leases
	for at := range x.plan.ChargesOf(i) {
		if c := &x.plan.Batch.Charges[at]; c.Policy.UsesLeases() && x.plan.Batch.Decisions[at].Charged > 0 {
			s.leases.Return(x.Connection, leases.Key{ID: c.ID, Number: number})
			m.Done.Inc()
			if c.Policy.Reserve != nil {
				s.noteCost(x, at)
			}
			return
		}
	}
	if number > limiter.LastLease {
		m.Foreign.Inc()
		return
	}
	for at := range x.plan.ChargesOf(i) { // the counter may have been reset since
		s.leases.Return(x.Connection, leases.Key{ID: x.plan.Batch.Charges[at].ID, Number: number})
	}
	m.Stale.Inc()
}

// noteCost notes what was charged in place of what charge at, a lease of x's request, had reserved.
func (s *Service) noteCost(x *Exchange, at int) {
	held := x.plan.Batch.Decisions[at].Charged
	cost, known := x.plan.LeaseCost(at)
	if !known && !x.plan.Batch.Charges[at].Policy.Reserve.ReleasesWithoutCost() {
		cost = held
	}
	s.metrics.Leases.Settled.Add(float64(held))
	s.metrics.Leases.Cost.Add(float64(cost))
}

// noteCancel notes that what x's request has taken under leases is about to be given back.
func (s *Service) noteCancel(x *Exchange) {
	for _, at := range x.plan.AllLeases() {
		if s.leases.Return(nil, x.leaseKey(at)) {
			s.metrics.Leases.Reset.Inc()
		}
	}
}

// planActive plans a request by the active rules without changing a counter, and returns the partition of its domain.
func (s *Service) planActive(p *descriptors.Plan, r *descriptors.Request) *limiter.Partition {
	rules := s.rules.Load()
	rules.set.Plan(p, r, descriptors.Global{ReadOnly: true, Rows: rules.rows})
	if i := p.DomainIndex; i >= 0 {
		return rules.partitions[i]
	}
	return nil
}

// TablesChanged reviews leases after single rows of tables have changed.
func (s *Service) TablesChanged() { s.changeTables(func(*serving) {}) }

// changeTables changes the active rows, and reviews leases.
func (s *Service) changeTables(change func(*serving)) {
	for {
		old := s.rules.Load()
		if old == nil {
			return
		}
		// Requests that were planned before compare this pointer: see noteLeases.
		r := *old
		change(&r)
		if s.rules.CompareAndSwap(old, &r) {
			s.leases.Review(false)
			return
		}
	}
}
