package store

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// What the fallback has admitted is owed to the store: when it is back it is charged with that, before
// requests are sent to it again (repay.go). Otherwise each time that it goes away would grant a new
// allowance.
//
// A call that was sent, and got the fallback because no answer came in time, owes nothing if the answer
// comes after all: the store has counted it. If its connection ends without one, nobody knows, and
// it is owed. So hits that were under way when the store went away may count twice.

// owes notes what charge i owes, if anything, of a batch that by has decided at the time now of the
// store's clock. The name has the start of a fixed window, and lease is the one that seals leases.
//
// A lease that is given back is owed whatever the fallback says.
func (f *fleet) owes(by Fallback, now limiter.Time, b *limiter.Batch, i int, name []byte, lease string, slot uint16, w limiter.Waiter) {
	c := &b.Charges[i]
	if c.Refund && c.Policy.UsesLeases() {
		if script.IsLease(lease, c.Hits) {
			f.owesBack(now, b, *c, c.Hits, lease, slot)
		}
		return
	}
	if c.Reserve {
		name = []byte(lease)
	}
	if !by.owes() {
		return
	}
	if c.Refund {
		gave := b.Stored().Refunded(i)
		if by == Allow { // which has no counters
			gave = b.Stored().Hits(i)
		}
		if gave > 0 {
			f.owed.less(name, gave)
		}
		return
	}
	f.owed.mu.Lock()
	defer f.owed.mu.Unlock()
	if d := &f.owed.spare; d.Set(now, b, i, by == Local) {
		f.forgot(f.owed.addLocked(name, slot, d, func() func(uint64) { return w.Exceeded(i) }))
	}
}

// owesBack notes that a lease that charge c of b has taken, or says itself, is to be given back.
func (f *fleet) owesBack(now limiter.Time, b *limiter.Batch, c limiter.Charge, lease uint64, name string, slot uint16) {
	defer f.nudge(slot)
	f.owed.mu.Lock()
	defer f.owed.mu.Unlock()
	f.forgot(f.owed.addLocked([]byte(name), slot, backOf(now, b, c, lease), func() func(uint64) { return nil }))
}

// backOf returns the debt of a lease that charge c of b has taken, or says itself, and that is to be given back.
func backOf(now limiter.Time, b *limiter.Batch, c limiter.Charge, lease uint64) *script.Debt {
	c.Refund, c.Reserve, c.Hits = true, false, lease
	d := &script.Debt{}
	d.Set(now, &limiter.Batch{Charges: []limiter.Charge{c}, Decisions: make([]limiter.Decision, 1), Partition: b.Partition}, 0, true)
	return d
}

// owes notes what b owes, which was not even asked, and which by has decided. Names of fixed windows lack the start.
//
// If by has not decided, b owes leases alone that are given back.
func (s *Store) owes(by Fallback, decided bool, now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) {
	if !decided {
		by = Error
	}
	s.options.guard(func() {
		var room [256]byte // of most names
		for i := range b.Charges {
			f, slot := s.slotOf(now, &b.Charges[i], names[i])
			at := f.timeOf(slot, now, b.Charges[i].Policy, names[i])
			f.owes(by, at, b, i, script.AppendName(room[:0], at, b.Charges[i].Policy, names[i]),
				script.LeaseName(b.Charges[i].Policy, names[i]), slot, w)
			f.nudge(slot)
		}
	})
}

// owesAsk notes what a owes, which the fallback has decided at the time now of the store's clock, or may
// owe while its fate is not known.
func (f *fleet) owesAsk(now limiter.Time, a *ask, decided bool) {
	by := f.options.Fallback
	if !decided {
		by = Error
	}
	f.fates.Lock()
	defer f.fates.Unlock()
	if a.sent {
		a.addStrays(now)
		if a.addDebts(now, by); a.fate != underWay {
			f.settleLocked(a.fate, a)
		}
		return
	}
	for i := range a.batch.Charges {
		if a.foreign != "" && a.debtName(i) == a.foreign {
			f.forgot(a.lost(by, i))
			continue
		}
		f.owes(by, now, a.batch, i, []byte(a.call.Name(i)), a.call.LeaseName(i), a.slot, a.waiter)
	}
	f.nudge(a.slot)
}

// addDebts adds what by has admitted of a, and the leases that a brings back.
func (a *ask) addDebts(now limiter.Time, by Fallback) {
	for i := range a.batch.Charges {
		c, d := &a.batch.Charges[i], &script.Debt{}
		switch {
		case c.Refund && c.Policy.UsesLeases():
			if !script.IsLease(a.call.LeaseName(i), c.Hits) {
				continue
			}
			d = backOf(now, a.batch, *c, c.Hits) // there may be no decision
		case !by.owes() || !d.Set(now, a.batch, i, by == Local):
			continue
		default:
			d.Exceeded = a.waiter.Exceeded(i)
		}
		d.Name, d.Slot = strings.Clone(a.debtName(i)), a.slot
		a.debts = append(a.debts, d)
	}
}

// addStrays adds the charges for which the store may hold something.
func (a *ask) addStrays(now limiter.Time) {
	for i := range a.batch.Charges {
		c := a.batch.Charges[i]
		if c.Refund || c.Hits == 0 || !c.Reserve && c.Policy.Algorithm != limiter.Concurrency {
			continue
		}
		d := backOf(now, a.batch, c, 0)
		d.Name, d.Slot = strings.Clone(a.call.LeaseName(i)), a.slot
		a.strays = append(a.strays, stray{i, d})
	}
}

// debtName returns the name by which charge i is owed.
func (a *ask) debtName(i int) string {
	if c := &a.batch.Charges[i]; c.Reserve || c.Refund && c.Policy.UsesLeases() {
		return a.call.LeaseName(i)
	}
	return a.call.Name(i)
}

// lost returns how many hits of charge i, which by has decided, the store cannot be charged with.
func (a *ask) lost(by Fallback, i int) uint64 {
	switch c := &a.batch.Charges[i]; {
	case c.Refund || !by.owes():
		return 0
	case by == Local:
		return a.batch.Decisions[i].Charged
	default:
		return a.batch.Stored().Hits(i)
	}
}

// settled says what has become of asks, some of which the fallback may have decided.
func (f *fleet) settled(what fate, asks ...*ask) {
	f.fates.Lock()
	defer f.fates.Unlock()
	for _, a := range asks {
		f.settleLocked(what, a)
	}
}

// leftAlone notes that the store has not decided a because another program wrote a key.
func (f *fleet) leftAlone(a *ask, key string) {
	f.fates.Lock()
	defer f.fates.Unlock()
	a.sent, a.foreign, a.strays = false, key, nil
	a.debts = slices.DeleteFunc(a.debts, func(d *script.Debt) bool {
		if d.Name == key {
			f.forgot(d.Hits)
		}
		return d.Name == key
	})
	f.settleLocked(uncounted, a)
}

// settleLocked says what has become of a. Hits that the store has counted are not owed. What the fallback has given under a
// lease is, and what the store has given, or may have, is given back.
func (f *fleet) settleLocked(what fate, a *ask) {
	a.fate = what
	switch {
	case what == counted:
		a.debts = slices.DeleteFunc(a.debts, func(d *script.Debt) bool { return !d.Takes() })
	case a.foreign == "": // else its hits are given back
		for _, d := range a.debts {
			if a.call.Counted(d.Name) {
				d.Subtract(d.Hits) // a debt of no hits, so that the key gets an expiry
			}
		}
	}
	for _, s := range a.strays {
		if s.debt.Returns(&a.call, s.charge, what == counted) {
			a.debts = append(a.debts, s.debt)
		}
	}
	if len(a.debts) > 0 {
		f.forgot(f.owed.putBack(a.debts))
		f.nudge(a.slot)
	}
	a.debts, a.strays = nil, nil
}

// forgot counts hits that the ledger has no room for.
func (f *fleet) forgot(hits uint64) {
	if hits > 0 {
		f.options.observe().Forgot(hits)
	}
}

// nudge has the lane of a slot charge what is owed, if it is not away.
func (f *fleet) nudge(slot uint16) {
	if l := f.lane(slot); l != nil {
		l.nudge()
	}
}

// nudge has the prober charge what is owed now.
func (l *lane) nudge() {
	select {
	case l.owes <- struct{}{}:
	default:
	}
}

// has reports whether l is the lane of a slot.
func (l *lane) has(slot uint16) bool { return l.fleet.lane(slot) == l }
