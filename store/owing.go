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
	if c.Refund && c.Policy.Leases() {
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
	decided := &b.Decisions[i]
	if c.Refund {
		if setOff := c.Hits - min(c.Hits, b.Stored().Hits(i)); decided.Charged > setOff {
			f.owed.less(name, decided.Charged-setOff)
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
	c.Refund, c.Reserve, c.Hits = true, false, lease
	d := &script.Debt{}
	d.Set(now, &limiter.Batch{Charges: []limiter.Charge{c}, Decisions: make([]limiter.Decision, 1), Partition: b.Partition}, 0, true)
	f.owed.mu.Lock()
	defer f.owed.mu.Unlock()
	f.forgot(f.owed.addLocked([]byte(name), slot, d, func() func(uint64) { return nil }))
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
// owe while nobody knows what has become of it.
func (f *fleet) owesAsk(now limiter.Time, a *ask, decided bool) {
	by := f.options.Fallback
	if !decided {
		by = Error
	}
	f.fates.Lock()
	defer f.fates.Unlock()
	if a.fate != uncounted && (a.sent || a.fate == counted) {
		for i := range a.batch.Charges {
			c, d := &a.batch.Charges[i], &script.Debt{}
			if back := c.Refund && c.Policy.Leases(); !back && !by.owes() || back && !script.IsLease(a.call.LeaseName(i), c.Hits) ||
				!d.Set(now, a.batch, i, by == Local) {
				continue
			}
			d.Exceeded = a.waiter.Exceeded(i)
			if d.Name, d.Slot = strings.Clone(a.call.Name(i)), a.slot; d.Leases() > 0 {
				d.Name = strings.Clone(a.call.LeaseName(i))
			}
			a.debts = append(a.debts, d)
		}
		if a.fate == counted {
			f.settleLocked(counted, a)
		}
		return
	}
	for i := range a.batch.Charges {
		f.owes(by, now, a.batch, i, []byte(a.call.Name(i)), a.call.LeaseName(i), a.slot, a.waiter)
	}
	f.nudge(a.slot)
}

// settled says what has become of asks, some of which the fallback may have decided.
func (f *fleet) settled(what fate, asks ...*ask) {
	f.fates.Lock()
	defer f.fates.Unlock()
	for _, a := range asks {
		f.settleLocked(what, a)
	}
}

// settleLocked says what has become of a. A place that the fallback has given is owed if the store had none left.
func (f *fleet) settleLocked(what fate, a *ask) {
	a.fate = what
	if what == counted {
		a.debts = slices.DeleteFunc(a.debts, func(d *script.Debt) bool { return a.call.Err != nil || !d.Unheld(&a.call) })
	}
	if len(a.debts) > 0 {
		f.forgot(f.owed.putBack(a.debts))
		f.nudge(a.slot)
	}
	a.debts = nil
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
