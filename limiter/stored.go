package limiter

import (
	"runtime"
	"slices"
)

// Stored is a [Batch] whose counters are in a store outside of this process. It is what such a store
// needs beside [Table], which it charges as: what to charge, what follows from what the charges found
// there, and a table that can go on where the store is away. Counters are told of as a [State];
// [Policy.WindowEnd], [Policy.Ring] and [Policy.Bucket] are the terms that they are charged in.
type Stored struct{ b *Batch }

// Stored returns b for a store.
func (b *Batch) Stored() Stored { return Stored{b} }

// A Waiter waits for decisions that come later, because they are made elsewhere.
type Waiter interface {
	// Decided is called with the error in place of a decision, or nil. It does not block.
	Decided(err error)
	// Exceeded returns what is to be told, maybe concurrently, of hits of a charge that was decided without its
	// counter and turns out to be beyond the limit when that is back; nil if nobody wants to know. It is called
	// before Decided.
	Exceeded(charge int) func(hits uint64)
}

// OffsetRefunds sets the refunds off against the charges on the same counters, so that
// [Stored.Hits] says what is left of each.
func (s Stored) OffsetRefunds() {
	s.b.offset = false
	if _, refunds, _, _ := s.b.survey(); refunds {
		s.b.setOff()
	}
}

// Hits returns what is left of the hits of charge i after [Stored.SetOff], or of the hits
// that it gives back.
func (s Stored) Hits(i int) uint64 { return s.b.hits(i) }

// Offsets returns what [Stored.SetOff] has set off.
func (s Stored) Offsets() []Offset {
	if s.b.offset {
		return s.b.setOffs
	}
	return nil
}

// Refunded returns how many hits charge i, a refund that was decided, took off its counter.
func (s Stored) Refunded(i int) uint64 { return s.b.gave(i) }

// Decide decides all charges as [Table.Decide] does, but on counters that a store has
// charged: found, parallel to them, is what they found there, and now is when the store
// decided. Of several charges on one counter the first tells the state before all
// of them, and the others only their Stamp. The store must have charged as Decide does
// for a caller who is alone, and set refunds off before; see [Stored.SetOff] and [Stored.SetOffs].
//
// It refers to found's Counts until the batch is reset or decided again, and allocates nothing once
// that has grown.
func (s Stored) Decide(now Time, found []State) {
	s.b.keep(found)
	s.b.table = nil
	s.b.decide(now)
}

// Deny makes charge i, decided at the time now, one whose group was denied by charges that are not in
// this batch: it gives back what the charge took on the condition that the group would be admitted, in the
// table that decided it, or in what follows from what the store told. Refunds that were set off against the charge give that
// back, too: Deny returns the hits of these, and how many hits the counter had to give.
func (s Stored) Deny(now Time, i int) (refunds, gave uint64) {
	b := s.b
	b.rollBack(now, i)
	b.Decisions[i].Denied = true
	for k := range s.Offsets() {
		if set := &b.setOffs[k]; set.Charge == i {
			hits, before := set.Hits, b.gave(set.Refund)
			b.refundUncounted(now, set)
			refunds, gave = refunds+hits-set.Hits, gave+b.gave(set.Refund)-before
		}
	}
	return refunds, gave
}

// ResolveGroups says which groups are denied, of charges that were decided in parts and copied; see [Stored.Copy]. deny is called
// for each charge that was not denied in its part, and is to undo it.
func (s Stored) ResolveGroups(deny func(i int)) {
	b := s.b
	b.Denied, b.Wait = false, 0
	_, _, quota, leases := b.survey()
	b.conclude(0, quota && !b.quotaPassed(), leases, deny)
}

// StateAfter makes left the state in which [Stored.Decide], of the same time, left the counter of
// charge i. It keeps the memory of left.
func (s Stored) StateAfter(now Time, i int, left *State) {
	v, p := &s.b.view, s.b.Charges[i].Policy
	s.b.recall(now, i, v)
	left.clear()
	p.algorithm().tell(v, now, p, v.state, left)
	told := s.b.told(i)
	left.HeldHits, left.PenaltyExpiry, left.PenaltyLevel = told.HeldHits, told.PenaltyExpiry, told.PenaltyLevel
}

// BucketAfter returns the bucket as charge i left it, which Conclude of the same time decided: while
// it has this TAT, a charge that waits is the newest, and can be cancelled.
func (s Stored) BucketAfter(now Time, i int) State {
	var turn State
	gcra{}.tell(nil, now, s.b.Charges[i].Policy, state{num: s.b.marks[i]}, &turn)
	return turn
}

// ResetDecisions makes the decisions empty ones, parallel to the charges, for [Stored.Copy] and [Stored.Adopt].
func (s Stored) ResetDecisions() {
	s.b.poison()
	s.b.resize(len(s.b.Charges))
	clear(s.b.Decisions)
	clear(s.b.marks)
	s.b.left = slices.Grow(s.b.left[:0], len(s.b.Charges))[:len(s.b.Charges)]
	for i := range s.b.Charges {
		s.b.left[i] = s.b.Charges[i].Hits
	}
	s.b.extra, s.b.setOffs, s.b.offset = false, s.b.setOffs[:0], true
}

// CopyDecision makes decision i that of charge k of part, which was decided with some of the charges, and what is left of its hits.
func (s Stored) CopyDecision(i int, part *Batch, k int) {
	s.b.Decisions[i], s.b.marks[i], s.b.left[i] = part.Decisions[k], part.marks[k], part.hits(k)
}

// ReadStates makes found, parallel to the charges, the states of their counters in a table, before they are
// decided. Of a log it has no Stamp. It keeps the memory of found, and changes no
// counter.
func (s Stored) ReadStates(t *Table, now Time, found []State) {
	v := &s.b.view
	s.b.table = t
	for i := range found {
		p, told := s.b.Charges[i].Policy, &found[i]
		for {
			s.b.read(now, i, v)
			told.clear()
			p.algorithm().tell(v, now, p, v.state, told)
			if v.slot == nil || v.slot.word.Load() == v.word {
				break
			}
		}
		if s.b.Charges[i].Penalises() {
			_, st := s.b.offender(now, i)
			penalty{}.tell(nil, now, nil, st, told)
		}
	}
}

// MergeInto makes the counter of charge i in a table what a store says it is at the time now, so that the
// table can go on from there when the store is away. Of a log it takes over nothing but what the charge,
// which [Stored.Decide] has decided, put into it: a store does not tell the time of each hit.
//
// A fixed window never goes back to an older one. It allocates nothing.
func (s Stored) MergeInto(t *Table, now Time, i int, told *State) {
	b := s.b
	if r := b.Charges[i].Policy.Reserve; r != nil {
		held := State{Hits: told.HeldHits}
		b.table = t
		b.beside(Charge{ID: b.Charges[i].ID, Policy: &r.hold}).Stored().MergeInto(t, now, 0, &held)
	}
	if b.Charges[i].Penalises() {
		t.raisePenalties(b.Charges[i].ID.Hi, millis(told.PenaltyExpiry))
		b.table = t
		b.beside(Charge{ID: b.Charges[i].ID, Policy: besidePolicy}).Stored().MergeInto(t, now, 0, told)
	}
	p, v := b.Charges[i].Policy, &b.view
	a := p.algorithm()
	b.members = slices.Grow(b.members[:0], 1)[:1]
	there := &b.members[0].seen // which the store tells of
	*there = view{class: &outside, found: told, at: now}
	a.found(there, now, p)
	b.table = t
	defer runtime.KeepAlive(t) // its memory is not in Go's heap
	for {
		b.read(now, i, v)
		after, ok := a.adopt(v, there, now, b, i)
		if !ok || v.slot == nil && a.weighs() && after.used+after.past == 0 || b.write(now, i, v, after) {
			return
		}
	}
}

// SetMirror says that t follows a store. Its places have numbers of their own then: any lease gives one back, and whoever
// decides in t tells the leases. It must be called before t is used.
func (t *Table) SetMirror() { t.mirror = true }

// Settled reports whether charge i, decided, is a lease that was brought back, or what that cost.
func (s Stored) Settled(i int) bool { return s.b.isSettled(i) }

// SetLease makes lease the one under which charge i, decided in a mirror, holds its place.
func (s Stored) SetLease(i int, lease uint64) { s.b.marks[i] = int64(lease) } //nolint:gosec // a lease

// keep fills b.kept.
func (b *Batch) keep(found []State) {
	n := len(b.Charges)
	b.poisonKept()
	b.kept = slices.Grow(b.kept[:0], n)[:n]
	if n == 1 {
		b.kept[0] = kept{told: found[0]}
		return
	}
	b.sortMembers(0, n)
	var hi int
	for lo := 0; lo < n; lo = hi {
		hi = b.runEnd(lo)
		first := b.members[lo].index
		for m := lo; m < hi; m++ {
			i := b.members[m].index
			b.kept[i] = kept{told: found[first], first: first}
			k, own := &b.kept[i].told, &found[i]
			k.Stamp, k.RefundStamp, k.Lease, k.SettledHits = own.Stamp, own.RefundStamp, own.Lease, own.SettledHits
			f := &b.kept[first].told
			if own.PenaltyLevel > 0 {
				f.PenaltyExpiry, f.PenaltyLevel = own.PenaltyExpiry, own.PenaltyLevel
			}
			f.HeldHits, f.Reservations = max(f.HeldHits, own.HeldHits), max(f.Reservations, own.Reservations) // not all on the counter tell
		}
	}
}

// told returns what a store told of the counter of charge i.
func (b *Batch) told(i int) *State { return &b.kept[b.kept[i].first].told }

// recall is read for a counter that a store told of.
func (b *Batch) recall(at Time, i int, v *view) {
	k := &b.kept[b.kept[i].first]
	*v = view{class: &outside, found: &b.kept[i].told, at: at}
	p := b.Charges[i].Policy
	p.algorithm().found(v, at, p)
	if k.changed {
		v.state = k.state
	}
	if k.newest != 0 {
		v.found.Time = k.newest
	}
}

// remember is write for a counter that a store told of.
func (b *Batch) remember(i int, v *view, after state) {
	k := &b.kept[b.kept[i].first]
	k.state, k.changed = after, true
	if after.past < v.past && after.used == 0 { // the newest hits of a log went
		k.newest = v.found.Stamp
	}
}
