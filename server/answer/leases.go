package answer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// noteLeases enters in the book what x's request, decided, has taken and brought back under leases.
func (s *Service) noteLeases(rules *serving, x *Exchange) {
	s.book.heard(x.Bearer, x.at)
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
		g := given{
			key: leaseKey{c.ID, x.plan.Batch.Lease(at)}, partition: x.plan.Batch.Partition,
			counters: s.ruleCounters(rules, x, i, x.plan.Limits[at]), table: x.plan.Limits[at].Table != nil,
			bearer: x.Bearer, stream: x.Stream, expires: x.at + limiter.Time(c.Policy.HeldFor()),
		}
		if s.later {
			g.name = append([]byte(nil), x.plan.Names[at]...)
		}
		s.book.enter(x.at, &g, c.Policy, x.plan.LeaseLimit(i, at), x.decoder.req.Domain, &x.decoder.req.Descriptors[i])
	}
	if s.rules.Load() != rules {
		s.reviewCall(x)
	}
}

// noteEnd notes what became of a lease that descriptor i of x's request has brought.
func (s *Service) noteEnd(x *Exchange, i int, number uint64) {
	m := &s.metrics.Leases
	for at := range x.plan.ChargesOf(i) {
		if c := &x.plan.Batch.Charges[at]; c.Policy.Leases() && x.plan.Batch.Decisions[at].Charged > 0 {
			s.book.ended(x.Bearer, leaseKey{c.ID, number})
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
		s.book.ended(x.Bearer, leaseKey{x.plan.Batch.Charges[at].ID, number})
	}
	m.Stale.Inc()
}

// noteCost notes what was charged in place of what charge at, a lease of x's request, had reserved.
func (s *Service) noteCost(x *Exchange, at int) {
	held := x.plan.Batch.Decisions[at].Charged
	cost, known := x.plan.CostBeside(at)
	if !known && !x.plan.Batch.Charges[at].Policy.Reserve.Release() {
		cost = held
	}
	s.metrics.Leases.Settled.Add(float64(held))
	s.metrics.Leases.Cost.Add(float64(cost))
}

// noteCancel notes that what x's request has taken under leases is about to be given back.
func (s *Service) noteCancel(x *Exchange) {
	for _, at := range x.plan.AllLeases() {
		if s.book.ended(nil, leaseKey{x.plan.Batch.Charges[at].ID, x.plan.Batch.Lease(at)}) {
			s.metrics.Leases.Reset.Inc()
		}
	}
}

// Bearer begins a connection of a client that is given leases. The client is who has that name. Connections of one
// name are taken to be of one client.
func (s *Service) Bearer(name string) *Bearer { return s.book.join(name) }

// Reset gives back the leases of a call that was answered on the connection. The client has reset it, so nobody
// else will: a request that was reserved for has not begun.
func (b *Bearer) Reset(stream uint32) {
	if b == nil { // the connection has had no call
		return
	}
	if l := b.book.takeCall(b, stream); l != nil {
		b.book.service.giveBack(l, true, b.book.service.metrics.Leases.Reset)
	}
}

// Leave ends the connection, on which so many calls were made.
func (b *Bearer) Leave(how Ending, calls uint32) { b.book.leave(b, how, calls) }

// time returns the time, or without a clock that of the newest request that had to do with leases.
func (s *Service) time() limiter.Time {
	if s.now != nil {
		return s.now()
	}
	return limiter.Time(s.book.latest.Load())
}

// giveBackMany is giveBack for any number of leases: while a store has mostGivings of them to decide, it calls waits and waits.
func (s *Service) giveBackMany(l *lease, unused bool, by prometheus.Counter, waits func()) {
	for l != nil {
		one := l
		l, one.sibling = l.sibling, nil
		select {
		case s.givings <- struct{}{}:
		default:
			waits()
			s.givings <- struct{}{}
		}
		s.giveBackWith(one, unused, by, s.givings)
	}
}

// giveBack gives back the leases of a list. They are unused if what was reserved under them has not begun.
func (s *Service) giveBack(l *lease, unused bool, by prometheus.Counter) {
	s.giveBackWith(l, unused, by, nil)
}

// giveBackWith is giveBack, and takes an element from a channel for each lease that is decided, unless the channel is nil.
func (s *Service) giveBackWith(l *lease, unused bool, by prometheus.Counter, done chan struct{}) {
	for now := s.time(); l != nil; l = l.sibling {
		g := &giving{service: s, by: by, names: [][]byte{l.name}, done: done}
		b := &g.batch
		b.Charges = append(b.Charges, limiter.Charge{ID: l.key.id, Policy: &l.policy, Hits: l.key.number, Refund: true})
		if unused && l.policy.Reserve != nil { // it has cost nothing
			b.Charges, g.names = append(b.Charges, limiter.Charge{ID: l.key.id, Policy: &l.policy, Group: 1}), append(g.names, l.name)
		}
		b.Budget, b.Partition, b.Clock = mostGiving, l.partition, s.now
		if done, err := s.decider.Decide(now, b, g.names, g); done || err != nil {
			g.Decided(err)
		}
	}
}

// mostGiving is how long a store may take to give something back. A place that it does not give back in time is
// free after its window.
const mostGiving = time.Second

// mostGivings is the number of leases that reloads, and clients that are gone, give back at once. Each takes 600 bytes until a store
// has decided it.
const mostGivings = 1 << 12

// giving is a lease that is being given back.
type giving struct {
	batch   limiter.Batch
	names   [][]byte
	service *Service
	by      prometheus.Counter
	done    chan struct{}
}

// Decided implements [limiter.Waiter].
func (g *giving) Decided(err error) {
	if g.done != nil {
		<-g.done
	}
	if err == nil && g.batch.Decisions[0].Charged > 0 {
		g.by.Inc()
	}
}

// Exceeded implements [limiter.Waiter].
func (*giving) Exceeded(int) func(uint64) { return nil }

var _ limiter.Waiter = (*giving)(nil)
