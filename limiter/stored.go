package limiter

import (
	"runtime"
	"slices"
)

// Stored is the interface of a [Batch] for an external store that decides charges in place of a
// [Table]: what to charge, the decisions that follow from the counters that the charges found
// there, and the transfer of counters to and from a table that takes over during an outage.
// Counters are exchanged as [State]; [Policy.WindowEnd], [Policy.Ring] and [Policy.Bucket] give the
// parameters of the algorithms.
type Stored struct{ b *Batch }

// Stored returns the store interface of b.
func (b *Batch) Stored() Stored { return Stored{b} }

// A Waiter is notified of decisions that are made asynchronously.
type Waiter interface {
	// Decided is called when the decisions are complete or failed with err. It must not block.
	Decided(err error)
	// Exceeded returns a callback for the given charge, or nil. After an outage the callback is
	// called, possibly concurrently, with the number of locally admitted hits that exceeded the
	// limit. Exceeded itself is called before Decided.
	Exceeded(charge int) func(hits uint64)
}

// A BlockObserver observes charges that a store makes in advance, for hits of later requests.
type BlockObserver interface {
	// ObserveBlock returns a function that the store calls when it has charged hits in advance to the
	// counter of the given charge of the batch, or nil. Its arguments are the time, the end of the fixed
	// window that was charged, and the used hits before and after. ObserveBlock must be called before the
	// batch is decided.
	ObserveBlock(charge int) func(now, end Time, before, after uint64)
}

// Precharge records that the given hits of charge i were charged to its counter in advance. It does
// nothing without an observer.
func (s Stored) Precharge(i int, hits uint64) {
	if s.b.Observer == nil {
		return
	}
	for len(s.b.precharged) <= i {
		s.b.precharged = append(s.b.precharged, 0)
	}
	s.b.precharged[i] += hits
}

// Precharged returns the hits of the decided charge i that were charged to its counter in advance.
func (b *Batch) Precharged(i int) uint64 {
	if i < len(b.precharged) {
		return b.precharged[i]
	}
	return 0
}

// Clone returns a batch with the same charges that does not refer to memory of the caller, except
// the partition. It has no decisions.
func (s Stored) Clone() *Batch {
	b := s.b
	c := &Batch{
		Charges: slices.Clone(b.Charges), QuotaPass: b.QuotaPass, Budget: b.Budget, Clock: b.Clock, Partition: b.Partition,
	}
	for i := range c.Charges {
		p := c.Charges[i].Policy.Clone(nil)
		c.Charges[i].Policy = &p
	}
	c.Stored().OffsetRefunds()
	return c
}

// OffsetRefunds offsets refunds against charges on the same counters. Afterwards [Stored.Hits]
// returns the remaining hits.
func (s Stored) OffsetRefunds() {
	s.b.offsetDone = false
	if _, refunds, _, _ := s.b.classifyCharges(); refunds {
		s.b.offsetRefunds()
	}
}

// Hits returns the hits of charge i, or those that a refund gives back, that remain after
// [Stored.OffsetRefunds].
func (s Stored) Hits(i int) uint64 { return s.b.hits(i) }

// Offsets returns the result of [Stored.OffsetRefunds].
func (s Stored) Offsets() []Offset {
	if s.b.offsetDone {
		return s.b.offsets
	}
	return nil
}

// Refunded returns how many hits the decided refund i took off its counter.
func (s Stored) Refunded(i int) uint64 { return s.b.refunded(i) }

// Decide decides all charges as [Table.Decide] does, but on counters that a store has already
// charged. found, parallel to the charges, has the states before the charges, and now is the time
// at which the store decided. If several charges have the same counter, the first one has the state
// before all of them, and the others only Stamp and the fields of their leases. The store must
// charge like an uncontended Table.Decide, after offsetting refunds; see [Stored.OffsetRefunds] and
// [Stored.Offsets].
//
// The batch refers to the Counts in found until it is reset or decided again. Decide does not
// allocate once the batch has grown.
func (s Stored) Decide(now Time, found []State) {
	s.b.loadReported(found)
	s.b.table = nil
	s.b.decide(now)
}

// Deny denies charge i, which was decided at the time now, because a charge outside of this batch
// denied its group. It undoes the charge, in the table that decided it or in the state derived from
// the store's reply. Refunds that were offset against the charge are then given back as well:
// refunds is the number of these hits, and gave how many of them the counter could give back.
func (s Stored) Deny(now Time, i int) (refunds, gave uint64) {
	b := s.b
	b.rollBack(now, i)
	b.Decisions[i].Denied = true
	for k := range s.Offsets() {
		if set := &b.offsets[k]; set.Charge == i {
			hits := set.Hits
			before := b.refunded(set.Refund)
			b.refundUncounted(now, set)
			refunds = refunds + hits - set.Hits
			gave = gave + b.refunded(set.Refund) - before
		}
	}
	return refunds, gave
}

// ResolveGroups marks the denied groups of a batch whose charges were decided in parts; see
// [Stored.CopyDecision]. deny is called for each charge that was not denied in its part, and must
// undo it.
func (s Stored) ResolveGroups(deny func(i int)) {
	b := s.b
	b.Denied = false
	b.Wait = 0
	_, _, quota, leases := b.classifyCharges()
	b.resolveGroups(0, quota && !b.quotaPassed(), leases, deny)
}

// StateAfter stores in left the state of the counter of charge i after [Stored.Decide] of the same
// time. It reuses the memory of left.
func (s Stored) StateAfter(now Time, i int, left *State) {
	v := &s.b.view
	p := s.b.Charges[i].Policy
	s.b.readStored(now, i, v)
	left.clear()
	p.algorithm().export(v, now, p, v.state, left)
	reported := s.b.reported(i)
	left.HeldHits = reported.HeldHits
	left.PenaltyExpiry = reported.PenaltyExpiry
	left.PenaltyLevel = reported.PenaltyLevel
}

// BucketAfter returns the bucket as charge i left it in [Stored.Decide] of the same time. While the
// bucket still has this TAT, a delayed charge is the newest and can be cancelled.
func (s Stored) BucketAfter(now Time, i int) State {
	var after State
	gcra{}.export(nil, now, s.b.Charges[i].Policy, state{mark: s.b.marks[i]}, &after)
	return after
}

// SubWindow returns the sub-window in which charge i, of a [SlidingWindow], was charged.
func (s Stored) SubWindow(i int) int64 { return s.b.marks[i] }

// ResetDecisions clears the decisions and makes them parallel to the charges, for
// [Stored.CopyDecision] and [Stored.MergeInto].
func (s Stored) ResetDecisions() {
	s.b.poison()
	s.b.resize(len(s.b.Charges))
	clear(s.b.Decisions)
	clear(s.b.marks)
	s.b.hitsLeft = slices.Grow(s.b.hitsLeft[:0], len(s.b.Charges))[:len(s.b.Charges)]
	for i := range s.b.Charges {
		s.b.hitsLeft[i] = s.b.Charges[i].Hits
	}
	s.b.special = false
	s.b.offsets = s.b.offsets[:0]
	s.b.offsetDone = true
}

// CopyDecision sets decision i from that of charge k of part, a batch with some of the charges,
// including the remaining hits.
func (s Stored) CopyDecision(i int, part *Batch, k int) {
	s.b.Decisions[i] = part.Decisions[k]
	s.b.marks[i] = part.marks[k]
	s.b.hitsLeft[i] = part.hits(k)
}

// ReadStates stores in found, parallel to the charges, the states of their counters in a table
// before they are decided. It sets no Stamp. It reuses the memory of found and changes no counter.
func (s Stored) ReadStates(t *Table, now Time, found []State) {
	v := &s.b.view
	s.b.table = t
	for i := range found {
		p := s.b.Charges[i].Policy
		reported := &found[i]
		for {
			s.b.read(now, i, v)
			reported.clear()
			p.algorithm().export(v, now, p, v.state, reported)
			if v.slot == nil || v.slot.word.Load() == v.word {
				break
			}
		}
		if s.b.Charges[i].Penalises() {
			_, st := s.b.readPenalty(now, i)
			penalty{}.export(nil, now, nil, st, reported)
		}
	}
}

// MergeInto updates the counter of charge i in a table with the state that a store reported at the
// time now, so that the table can take over during an outage. A log receives only the hits of the
// charge as decided by [Stored.Decide], since a store does not report the time of each hit.
//
// A fixed window never returns to an older one. MergeInto does not allocate.
func (s Stored) MergeInto(t *Table, now Time, i int, reported *State) {
	b := s.b
	if r := b.Charges[i].Policy.Reserve; r != nil {
		held := State{Hits: reported.HeldHits}
		b.table = t
		b.companionBatch(Charge{ID: b.Charges[i].ID, Policy: &r.hold}).Stored().MergeInto(t, now, 0, &held)
	}
	if b.Charges[i].Penalises() {
		t.raisePenalties(b.Charges[i].ID.Hi, millis(reported.PenaltyExpiry))
		b.table = t
		b.companionBatch(b.Charges[i].penaltyCharge()).Stored().MergeInto(t, now, 0, reported)
	}
	p := b.Charges[i].Policy
	v := &b.view
	a := p.algorithm()
	b.members = slices.Grow(b.members[:0], 1)[:1]
	stored := &b.members[0].seen // as reported by the store
	*stored = view{class: &externalClass, reported: reported, at: now}
	a.importState(stored, now, p)
	b.table = t
	defer runtime.KeepAlive(t) // its memory is not in Go's heap
	for {
		b.read(now, i, v)
		after, ok := a.merge(v, stored, now, b, i)
		isUnused := v.slot == nil && a.hasWeight() && after.used+after.past == 0 // it needs no slot
		if !ok || isUnused || b.write(now, i, v, after) {
			return
		}
	}
}

// SetMirror marks t as the local mirror of a store. Permits in a mirror have their own numbers: any
// valid lease releases one, and the store's leases are set with [Stored.SetLease]. It must be
// called before t is used.
func (t *Table) SetMirror() { t.mirror = true }

// Settled reports whether the decided charge i returned the lease of a reservation or was its cost.
func (s Stored) Settled(i int) bool { return s.b.isSettled(i) }

// SetLease sets the lease under which charge i, which a mirror decided, holds its permit.
func (s Stored) SetLease(i int, lease uint64) { s.b.marks[i] = int64(lease) } //nolint:gosec // a lease

// loadReported fills b.stored from found.
func (b *Batch) loadReported(found []State) {
	n := len(b.Charges)
	b.poisonStored()
	b.stored = slices.Grow(b.stored[:0], n)[:n]
	if n == 1 {
		b.stored[0] = storedCounter{reported: found[0]}
		return
	}
	b.sortMembers(0, n)
	var hi int
	for lo := 0; lo < n; lo = hi {
		hi = b.runEnd(lo)
		first := b.members[lo].index
		for m := lo; m < hi; m++ {
			i := b.members[m].index
			b.stored[i] = storedCounter{reported: found[first], first: first}
			k := &b.stored[i].reported
			own := &found[i]
			k.Stamp = own.Stamp
			k.RefundStamp = own.RefundStamp
			k.Lease = own.Lease
			k.SettledHits = own.SettledHits
			f := &b.stored[first].reported
			if own.PenaltyLevel > 0 {
				f.PenaltyExpiry = own.PenaltyExpiry
				f.PenaltyLevel = own.PenaltyLevel
			}
			// Not all charges on the counter report these.
			f.HeldHits = max(f.HeldHits, own.HeldHits)
			f.Reservations = max(f.Reservations, own.Reservations)
		}
	}
}

// reported returns the state that a store reported for the counter of charge i.
func (b *Batch) reported(i int) *State { return &b.stored[b.stored[i].first].reported }

// readStored is read for a counter that a store reported.
func (b *Batch) readStored(at Time, i int, v *view) {
	k := &b.stored[b.stored[i].first]
	*v = view{class: &externalClass, reported: &b.stored[i].reported, at: at}
	p := b.Charges[i].Policy
	p.algorithm().importState(v, at, p)
	if k.changed {
		v.state = k.state
	}
	if k.newest != 0 {
		v.reported.Time = k.newest
	}
}

// writeStored is write for a counter that a store reported.
func (b *Batch) writeStored(i int, v *view, after state) {
	k := &b.stored[b.stored[i].first]
	k.state = after
	k.changed = true
	if after.past < v.past && after.used == 0 { // the newest hits of a log were refunded
		k.newest = v.reported.Stamp
	}
}
