package store

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// Hits that the fallback admits are unsynced: the store is charged with them when it recovers,
// before it gets requests again (sync.go). Otherwise each outage would grant a new allowance.
//
// If a request was sent, and the fallback decided it because no reply came in time, a late reply
// shows which of its hits the store has counted. The others, which the store denied, are recorded. If
// the connection ends without a reply, that is not known, and all hits of the request are recorded. So
// hits that were in flight when the store became unavailable may count twice.

// recordUnsynced records the hits of charge i that the given fallback admitted, at the time now of
// the store's clock. The name has the start of a fixed window; lease is the name that seals leases.
// A released lease is recorded with every fallback.
func (f *backend) recordUnsynced(
	by Fallback, now limiter.Time, b *limiter.Batch, i int, name []byte, lease string, slot uint16, w limiter.Waiter,
) {
	c := &b.Charges[i]
	if c.Refund && c.Policy.UsesLeases() {
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
		refunded := b.Stored().Refunded(i)
		if by == Allow { // without counters
			refunded = b.Stored().Hits(i)
		}
		if refunded > 0 {
			f.ledger.subtract(name, refunded)
		}
		return
	}
	f.ledger.mu.Lock()
	defer f.ledger.mu.Unlock()
	if d := &f.ledger.scratch; d.Set(now, b, i, by == Local) {
		f.countDropped(f.ledger.addLocked(name, slot, d, func() func(uint64) { return w.Exceeded(i) }))
	}
}

// recordRelease records that a lease, which charge c of b acquired or returns, is to be released.
func (f *backend) recordRelease(
	now limiter.Time, b *limiter.Batch, c limiter.Charge, lease uint64, name string, slot uint16,
) {
	defer f.requestSync(slot)
	f.ledger.mu.Lock()
	defer f.ledger.mu.Unlock()
	f.countDropped(f.ledger.addLocked([]byte(name), slot, releaseOf(now, b, c, lease),
		func() func(uint64) { return nil }))
}

// releaseOf returns the release of a lease that charge c of b acquired or returns.
func releaseOf(now limiter.Time, b *limiter.Batch, c limiter.Charge, lease uint64) *script.Unsynced {
	c.Refund = true
	c.Reserve = false
	c.Hits = lease
	d := &script.Unsynced{}
	d.Set(now, &limiter.Batch{
		Charges: []limiter.Charge{c}, Decisions: make([]limiter.Decision, 1), Partition: b.Partition,
	}, 0, true)
	return d
}

// recordAllUnsynced records the unsynced hits of b, which was not sent and which the given fallback
// decided. Names of fixed windows lack the start. If the fallback has not decided, only released
// leases are recorded.
func (s *Store) recordAllUnsynced(
	by Fallback, decided bool, now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter,
) {
	if !decided {
		by = Error
	}
	s.options.guard(func() {
		var room [256]byte // most names fit
		for i := range b.Charges {
			f, slot := s.slotOf(now, &b.Charges[i], names[i])
			at := f.timeOf(slot, now, b.Charges[i].Policy, names[i])
			f.recordUnsynced(by, at, b, i, script.AppendName(room[:0], at, b.Charges[i].Policy, names[i]),
				script.LeaseName(b.Charges[i].Policy, names[i]), slot, w)
			f.requestSync(slot)
		}
	})
}

// recordRequest records the unsynced hits of req, which the fallback decided at the time now of the
// store's clock. While its outcome is not known, they are kept in req.
func (f *backend) recordRequest(now limiter.Time, req *request, decided bool) {
	by := f.options.Fallback
	if !decided {
		by = Error
	}
	f.outcomeMu.Lock()
	defer f.outcomeMu.Unlock()
	if req.sent {
		req.end.fellBack(req)
		if !req.foreign { // otherwise the store has granted none
			req.addStrayLeases(now)
		}
		if req.addUnsynced(now, by); req.outcome != outcomePending {
			f.resolveLocked(req.outcome, req)
		}
		return
	}
	for i := range req.batch.Charges {
		f.recordUnsynced(by, now, req.batch, i, []byte(req.call.Name(i)), req.call.LeaseName(i), req.slot, req.waiter)
	}
	f.requestSync(req.slot)
}

// subtractUnsynced subtracts hits of a charge from its unsynced hits. They are in late, unless that is
// nil or its outcome is known.
func (f *backend) subtractUnsynced(late *request, charge int, name []byte, hits uint64) {
	f.outcomeMu.Lock()
	defer f.outcomeMu.Unlock()
	if late == nil || late.outcome != outcomePending {
		f.ledger.subtract(name, hits)
		return
	}
	late.unsynced = slices.DeleteFunc(late.unsynced, func(d unsyncedCharge) bool {
		if d.charge != charge || d.HasAcquired() {
			return false
		}
		d.Subtract(hits)
		return d.Hits == 0
	})
}

// addUnsynced adds the hits that the fallback admitted, and the leases that req returns.
func (req *request) addUnsynced(now limiter.Time, by Fallback) {
	for i := range req.batch.Charges {
		c := &req.batch.Charges[i]
		d := &script.Unsynced{}
		switch {
		case c.Refund && c.Policy.UsesLeases():
			if !script.IsLease(req.call.LeaseName(i), c.Hits) {
				continue
			}
			d = releaseOf(now, req.batch, *c, c.Hits) // the fallback may not have decided
		case !by.recordsUnsynced() || !d.Set(now, req.batch, i, by == Local):
			continue
		default:
			d.Exceeded = req.waiter.Exceeded(i)
		}
		d.Name = strings.Clone(req.unsyncedName(i))
		d.Slot = req.slot
		req.unsynced = append(req.unsynced, unsyncedCharge{d, i})
	}
	if len(req.unsynced) > 0 {
		req.copied = req.batch.Stored().Clone()
	}
}

// addStrayLeases adds the leases that the store may have granted for req.
func (req *request) addStrayLeases(now limiter.Time) {
	for i := range req.batch.Charges {
		c := req.batch.Charges[i]
		if c.Refund || c.Hits == 0 || !c.Reserve && c.Policy.Algorithm != limiter.Concurrency {
			continue
		}
		d := releaseOf(now, req.batch, c, 0)
		d.Name = strings.Clone(req.call.LeaseName(i))
		d.Slot = req.slot
		req.strays = append(req.strays, strayLease{i, d})
	}
}

// unsyncedName returns the name under which charge i is recorded.
func (req *request) unsyncedName(i int) string {
	if c := &req.batch.Charges[i]; c.Reserve || c.Refund && c.Policy.UsesLeases() {
		return req.call.LeaseName(i)
	}
	return req.call.Name(i)
}

// resolve sets the outcome of requests. The fallback may have decided some of them.
func (f *backend) resolve(result outcome, requests ...*request) {
	f.outcomeMu.Lock()
	defer f.outcomeMu.Unlock()
	for _, req := range requests {
		f.resolveLocked(result, req)
	}
}

// resolveForeign records that the store has not decided req because another program wrote a key.
func (f *backend) resolveForeign(req *request) {
	f.outcomeMu.Lock()
	defer f.outcomeMu.Unlock()
	req.foreign = true
	req.strays = nil
	f.resolveLocked(outcomeUncounted, req)
}

// resolveLocked sets the outcome of req. Hits that the store has counted are not recorded; those
// that it has denied are, since the fallback has admitted them. Leases of the fallback are recorded,
// and leases that the store has granted, or may have granted, are released.
func (f *backend) resolveLocked(result outcome, req *request) {
	req.outcome = result
	if result == outcomeCounted {
		counted := f.countedCharges(req)
		req.unsynced = slices.DeleteFunc(req.unsynced,
			func(d unsyncedCharge) bool { return !d.HasAcquired() && counted(d.charge) })
	} else {
		for _, d := range req.unsynced {
			if req.call.Counted(d.Name) {
				d.Subtract(d.Hits) // with 0 hits, so that the key gets an expiry
			}
		}
	}
	for _, s := range req.strays {
		if s.release.SetRelease(&req.call, s.charge, result == outcomeCounted) {
			req.unsynced = append(req.unsynced, unsyncedCharge{s.release, s.charge})
		}
	}
	if len(req.unsynced) > 0 {
		all := make([]*script.Unsynced, len(req.unsynced))
		for i, d := range req.unsynced {
			all[i] = d.Unsynced
		}
		f.countDropped(f.ledger.restore(all))
		f.requestSync(req.slot)
	}
	req.unsynced = nil
	req.strays = nil
	req.copied = nil
}

// countedCharges returns a function that reports whether the store, by its reply, has counted the
// hits of a charge of req, or given them back. It has not counted hits that it denied, unless denied
// hits count. The hits of a choice are counted if the store has charged any of its limits.
func (f *backend) countedCharges(req *request) func(charge int) bool {
	b := req.copied
	if b == nil || !f.options.guard(func() { b.Stored().Decide(req.repliedAt, req.call.Found) }) {
		return func(int) bool { return true }
	}
	return func(i int) bool {
		if b.Charges[i].Refund || b.Decisions[i].Charged > 0 {
			return true
		}
		return b.Charges[i].Choice != limiter.NoChoice && b.Decisions[b.Stored().Chosen(i)].Charged > 0
	}
}

// countDropped counts hits for which the ledger has no room.
func (f *backend) countDropped(hits uint64) {
	if hits > 0 {
		f.options.observe().Dropped(hits)
	}
}

// requestSync wakes the prober of a slot, if its shard is available.
func (f *backend) requestSync(slot uint16) {
	if sh := f.shardOf(slot); sh != nil {
		sh.requestSync()
	}
}

// requestSync wakes the prober to sync hits.
func (sh *shard) requestSync() {
	select {
	case sh.syncNow <- struct{}{}:
	default:
	}
}

// owns reports whether sh is the shard of a slot.
func (sh *shard) owns(slot uint16) bool { return sh.backend.shardOf(slot) == sh }
