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

// recordUnsynced notes what charge i owes, if anything, of a batch that by has decided at the time now of the
// store's clock. The name has the start of a fixed window, and lease is the one that seals leases.
//
// A lease that is given back is owed whatever the fallback says.
func (f *backend) recordUnsynced(by Fallback, now limiter.Time, b *limiter.Batch, i int, name []byte, lease string, slot uint16, w limiter.Waiter) {
	c := &b.Charges[i]
	if c.Refund && c.Policy.Leases() {
		if script.IsLease(lease, c.Hits) {
			f.recordRelease(now, b, *c, c.Hits, lease, slot)
		}
		return
	}
	if c.Reserve {
		name = []byte(lease)
	}
	if !by.recordsUnsynced() {
		return
	}
	if c.Refund {
		gave := b.Stored().Gave(i)
		if by == Allow { // which has no counters
			gave = b.Stored().Hits(i)
		}
		if gave > 0 {
			f.ledger.subtract(name, gave)
		}
		return
	}
	f.ledger.mu.Lock()
	defer f.ledger.mu.Unlock()
	if d := &f.ledger.scratch; d.Set(now, b, i, by == Local) {
		f.countDropped(f.ledger.addLocked(name, slot, d, func() func(uint64) { return w.Exceeded(i) }))
	}
}

// recordRelease notes that a lease that charge c of b has taken, or says itself, is to be given back.
func (f *backend) recordRelease(now limiter.Time, b *limiter.Batch, c limiter.Charge, lease uint64, name string, slot uint16) {
	defer f.requestSync(slot)
	f.ledger.mu.Lock()
	defer f.ledger.mu.Unlock()
	f.countDropped(f.ledger.addLocked([]byte(name), slot, backOf(now, b, c, lease), func() func(uint64) { return nil }))
}

// backOf returns the debt of a lease that charge c of b has taken, or says itself, and that is to be given back.
func backOf(now limiter.Time, b *limiter.Batch, c limiter.Charge, lease uint64) *script.Unsynced {
	c.Refund, c.Reserve, c.Hits = true, false, lease
	d := &script.Unsynced{}
	d.Set(now, &limiter.Batch{Charges: []limiter.Charge{c}, Decisions: make([]limiter.Decision, 1), Partition: b.Partition}, 0, true)
	return d
}

// recordAllUnsynced notes what b owes, which was not even asked, and which by has decided. Names of fixed windows lack the start.
//
// If by has not decided, b owes leases alone that are given back.
func (s *Store) recordAllUnsynced(by Fallback, decided bool, now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) {
	if !decided {
		by = Error
	}
	s.options.guard(func() {
		var room [256]byte // of most names
		for i := range b.Charges {
			f, slot := s.slotOf(now, &b.Charges[i], names[i])
			at := f.timeOf(slot, now, b.Charges[i].Policy, names[i])
			f.recordUnsynced(by, at, b, i, script.AppendName(room[:0], at, b.Charges[i].Policy, names[i]),
				script.LeaseName(b.Charges[i].Policy, names[i]), slot, w)
			f.requestSync(slot)
		}
	})
}

// recordRequest notes what a owes, which the fallback has decided at the time now of the store's clock, or may
// owe while its fate is not known.
func (f *backend) recordRequest(now limiter.Time, req *request, decided bool) {
	by := f.options.Fallback
	if !decided {
		by = Error
	}
	f.outcomeMu.Lock()
	defer f.outcomeMu.Unlock()
	if req.sent {
		req.addStrayLeases(now)
		if req.addUnsynced(now, by); req.outcome != outcomePending {
			f.resolveLocked(req.outcome, req)
		}
		return
	}
	for i := range req.batch.Charges {
		if req.foreignKey != "" && req.unsyncedName(i) == req.foreignKey {
			f.countDropped(req.lostHits(by, i))
			continue
		}
		f.recordUnsynced(by, now, req.batch, i, []byte(req.call.Name(i)), req.call.LeaseName(i), req.slot, req.waiter)
	}
	f.requestSync(req.slot)
}

// addUnsynced adds what by has admitted of a, and the leases that a brings back.
func (req *request) addUnsynced(now limiter.Time, by Fallback) {
	for i := range req.batch.Charges {
		c, d := &req.batch.Charges[i], &script.Unsynced{}
		switch {
		case c.Refund && c.Policy.Leases():
			if !script.IsLease(req.call.LeaseName(i), c.Hits) {
				continue
			}
			d = backOf(now, req.batch, *c, c.Hits) // there may be no decision
		case !by.recordsUnsynced() || !d.Set(now, req.batch, i, by == Local):
			continue
		default:
			d.Exceeded = req.waiter.Exceeded(i)
		}
		d.Name, d.Slot = strings.Clone(req.unsyncedName(i)), req.slot
		req.unsynced = append(req.unsynced, d)
	}
}

// addStrayLeases adds the charges for which the store may hold something.
func (req *request) addStrayLeases(now limiter.Time) {
	for i := range req.batch.Charges {
		c := req.batch.Charges[i]
		if c.Refund || c.Hits == 0 || !c.Reserve && c.Policy.Algorithm != limiter.Concurrency {
			continue
		}
		d := backOf(now, req.batch, c, 0)
		d.Name, d.Slot = strings.Clone(req.call.LeaseName(i)), req.slot
		req.strays = append(req.strays, strayLease{i, d})
	}
}

// unsyncedName returns the name by which charge i is owed.
func (req *request) unsyncedName(i int) string {
	if c := &req.batch.Charges[i]; c.Reserve || c.Refund && c.Policy.Leases() {
		return req.call.LeaseName(i)
	}
	return req.call.Name(i)
}

// lostHits returns how many hits of charge i, which by has decided, the store cannot be charged with.
func (req *request) lostHits(by Fallback, i int) uint64 {
	switch c := &req.batch.Charges[i]; {
	case c.Refund || !by.recordsUnsynced():
		return 0
	case by == Local:
		return req.batch.Decisions[i].Charged
	default:
		return req.batch.Stored().Hits(i)
	}
}

// resolve says what has become of asks, some of which the fallback may have decided.
func (f *backend) resolve(what outcome, asks ...*request) {
	f.outcomeMu.Lock()
	defer f.outcomeMu.Unlock()
	for _, req := range asks {
		f.resolveLocked(what, req)
	}
}

// resolveForeign notes that the store has not decided a because another program wrote a key.
func (f *backend) resolveForeign(req *request, key string) {
	f.outcomeMu.Lock()
	defer f.outcomeMu.Unlock()
	req.sent, req.foreignKey, req.strays = false, key, nil
	req.unsynced = slices.DeleteFunc(req.unsynced, func(d *script.Unsynced) bool {
		if d.Name == key {
			f.countDropped(d.Hits)
		}
		return d.Name == key
	})
	f.resolveLocked(outcomeUncounted, req)
}

// resolveLocked says what has become of a. Hits that the store has counted are not owed. What the fallback has given under a
// lease is, and what the store has given, or may have, is given back.
func (f *backend) resolveLocked(what outcome, req *request) {
	req.outcome = what
	switch {
	case what == outcomeCounted:
		req.unsynced = slices.DeleteFunc(req.unsynced, func(d *script.Unsynced) bool { return !d.HasAcquired() })
	case req.foreignKey == "": // else its hits are given back
		for _, d := range req.unsynced {
			if req.call.Counted(d.Name) {
				d.Subtract(d.Hits) // a debt of no hits, so that the key gets an expiry
			}
		}
	}
	for _, s := range req.strays {
		if s.release.SetRelease(&req.call, s.charge, what == outcomeCounted) {
			req.unsynced = append(req.unsynced, s.release)
		}
	}
	if len(req.unsynced) > 0 {
		f.countDropped(f.ledger.restore(req.unsynced))
		f.requestSync(req.slot)
	}
	req.unsynced, req.strays = nil, nil
}

// countDropped counts hits that the ledger has no room for.
func (f *backend) countDropped(hits uint64) {
	if hits > 0 {
		f.options.observe().Dropped(hits)
	}
}

// requestSync has the lane of a slot charge what is owed, if it is not away.
func (f *backend) requestSync(slot uint16) {
	if sh := f.shardOf(slot); sh != nil {
		sh.requestSync()
	}
}

// requestSync has the prober charge what is owed now.
func (sh *shard) requestSync() {
	select {
	case sh.syncNow <- struct{}{}:
	default:
	}
}

// owns reports whether l is the lane of a slot.
func (sh *shard) owns(slot uint16) bool { return sh.backend.shardOf(slot) == sh }
