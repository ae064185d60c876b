package limiter

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Reserve configures reservations of hits whose number is known only later, such as the tokens of a
// response that is yet to be generated. Reserved hits are stored in a companion counter and are not
// charged. A reservation is admitted if it fits the limit together with all used and reserved hits.
// When the lease is returned, the actual cost is charged in place of the reserved hits.
// Reservations therefore survive window boundaries, and hits are never refunded to a window that is
// over or to a bucket that has drained.
//
// Used and reserved hits never exceed the limit at admission. A counter exceeds its limit only by
// the amount by which actual costs exceed the reservations.
type Reserve struct {
	hold    Policy // policy of the companion counter, which has the same ID
	release bool
}

// MaxReservations is the maximum number of reservations per counter.
const MaxReservations = MaxLog / 2

// NewReserve returns a reserve: see [Reserve.Set].
func NewReserve(reservations uint32, life time.Duration, release bool) *Reserve {
	r := new(Reserve)
	r.Set(reservations, life, release)
	return r
}

// Set configures r for the given number of concurrent reservations, 1 to [MaxReservations]. A
// reservation that is not returned within life is dropped without a charge. If a lease is returned
// without a cost, the reserved hits are charged, or dropped if release is set.
func (r *Reserve) Set(reservations uint32, life time.Duration, release bool) {
	*r = Reserve{
		hold: Policy{Algorithm: Concurrency, Limit: reservations, Window: life, weighted: true}, release: release,
	}
	r.hold.Prepare()
}

// SetLongestLife sets the longest life of reservations on the same counter under any earlier rule.
// Reservations made under an earlier rule keep their life.
func (r *Reserve) SetLongestLife(longest time.Duration) {
	r.hold.longestLife = longest
	r.hold.Prepare()
}

// LongestLife returns the longest life of a reservation under any rule of the counter.
func (r *Reserve) LongestLife() time.Duration { return max(r.hold.longestLife, r.hold.Window) }

// Life returns the maximum life of a reservation.
func (r *Reserve) Life() time.Duration { return r.hold.Window }

// MaxReservations returns the maximum number of concurrent reservations.
func (r *Reserve) MaxReservations() uint32 { return r.hold.Limit }

// HoldPolicy returns the policy of the companion counter. Callers must not use it in charges.
func (r *Reserve) HoldPolicy() *Policy { return &r.hold }

// ReleasesWithoutCost reports whether a lease that is returned without a cost drops its hits
// uncharged.
func (r *Reserve) ReleasesWithoutCost() bool { return r.release }

func (r *Reserve) validate(p *Policy) error {
	switch p.Algorithm {
	case FixedWindow, SlidingWindow, TokenBucket:
	case SlidingLog, LeakyBucket, Concurrency:
		return errors.New("reserve: not supported by this algorithm")
	}
	if r.hold.Limit < 1 || r.hold.Limit > MaxReservations {
		return fmt.Errorf("reserve: %d concurrent reservations: must be 1 to %d", r.hold.Limit, MaxReservations)
	}
	return r.hold.Validate()
}

// A companion is the scratch batch for charges on companion counters and for forced charges.
type companion struct {
	Batch // has a single charge

	forcedPolicy Policy // policy of a forced charge, and of deniedCharge
	deniedCharge Charge // copy of a charge denied by a penalty
}

// companionBatch returns b's companion batch with c as its only charge.
func (b *Batch) companionBatch(c Charge) *Batch {
	if b.companion == nil {
		b.companion = &companion{}
	}
	b.companion.poison()
	a := &b.companion.Batch
	a.special = false
	a.offsetDone = false
	a.Charges = append(a.Charges[:0], c)
	a.table = b.table
	a.Partition = b.Partition
	a.Clock = b.Clock
	a.resize(1)
	return a
}

// heldHits returns the number of hits reserved on the counter of charge i.
func (b *Batch) heldHits(at Time, i int) uint64 {
	if b.table == nil {
		return b.reported(i).HeldHits
	}
	c := &b.Charges[i]
	a := b.companionBatch(Charge{ID: c.ID, Policy: &c.Policy.Reserve.hold})
	a.decideCharge(at, 0)
	return a.Decisions[0].Before
}

// decideReserve decides charge i, a reservation, on a counter in the state st with the given number
// of reserved hits. It returns false if v has changed.
func (b *Batch) decideReserve(v *view, at Time, i int, st state, held uint64) bool {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	p := c.Policy
	a := c.Policy.algorithm()
	if _, ok := a.decide(v, at, c, held+c.Hits, 0, st, d); !ok {
		return false
	}
	before := d.Before + held
	if d.Over {
		if _, ok := a.decide(v, at, c, c.Hits, 0, st, d); !ok {
			return false
		}
		if !d.Over { // a reservation may be settled at any moment
			d.Over = true
			d.RetryAfter = time.Second
		}
	}
	a.finish(v, at, p, 0, st, d)
	d.Before = before
	d.Charged = 0
	if !d.Over {
		d.Charged = c.Hits
		d.Remaining -= min(d.Remaining, held+c.Hits)
	}
	return v.unchanged()
}

// reserveHits decides charge i, a reservation, in two steps: it acquires the hold first and then
// reads the counter. A settlement works in the opposite order. A concurrent reader thus sees each
// pending hit at least once, and an admitted reservation fits the limit.
func (b *Batch) reserveHits(at Time, i int) {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	v := &b.view
	check := func(held uint64) {
		for b.read(at, i, v); !b.decideReserve(v, at, i, v.state, held); {
			b.read(at, i, v)
		}
	}
	if check(b.heldHits(at, i)); d.Over || c.Hits == 0 {
		return
	}
	denyFull := func() {
		d.Over = true
		d.RetryAfter = time.Second
		d.Reset = time.Second
		d.Remaining = 0
		d.Charged = 0
	}
	if b.table == nil {
		t := b.reported(i)
		if t.Reservations >= uint64(c.Policy.Reserve.hold.Limit) {
			denyFull()
			return
		}
		b.marks[i] = int64(b.stored[i].reported.Lease) //nolint:gosec // a lease
		t.HeldHits += c.Hits
		t.Reservations++
		return
	}
	a := b.companionBatch(Charge{ID: c.ID, Policy: &c.Policy.Reserve.hold, Hits: c.Hits})
	if a.decideCharge(at, 0); a.Decisions[0].Over {
		denyFull()
		return
	}
	b.marks[i] = a.marks[0]
	pause(betweenCharges)
	if check(a.Decisions[0].Before); d.Over {
		a.undoCharge(at, 0)
	}
}

// dropReservation undoes the reservation of charge i.
func (b *Batch) dropReservation(at Time, i int) {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	if b.table == nil {
		b.dropStoredReservation(i, d.Charged)
	} else {
		a := b.companionBatch(Charge{ID: c.ID, Policy: &c.Policy.Reserve.hold, Hits: c.Hits})
		a.Decisions[0] = Decision{Charged: d.Charged}
		a.marks[0] = b.marks[i]
		a.undoCharge(at, 0)
	}
	d.Remaining += d.Charged
	d.Charged = 0
}

// dropStoredReservation removes a reservation of the given hits from the state that a store
// reported.
func (b *Batch) dropStoredReservation(i int, hits uint64) {
	t := b.reported(i)
	t.HeldHits -= min(t.HeldHits, hits)
	t.Reservations -= min(t.Reservations, 1)
}

// settleLeases decides the returned leases of reservations in the batch and the charges of their
// costs. A cost is charged regardless of the limit, in place of the reserved hits.
func (b *Batch) settleLeases(at Time) {
	b.settled = slices.Grow(b.settled[:0], len(b.Charges))[:len(b.Charges)]
	clear(b.settled)
	for i := range b.Charges {
		if c := &b.Charges[i]; c.Refund && c.Policy.Reserve != nil {
			b.settled[i] = true
			b.settleLease(at, i)
		}
	}
}

// sharesCounter reports whether c and o are charges on the same counter.
func (c *Charge) sharesCounter(o *Charge) bool {
	return c.ID == o.ID && c.Policy.Algorithm == o.Policy.Algorithm
}

// isSettled reports whether settleLeases has decided charge i.
func (b *Batch) isSettled(i int) bool {
	return b.special && b.usesLeases && i < len(b.settled) && b.settled[i]
}

// settleLease claims the lease, then charges the cost and then releases the hold; see reserveHits.
// If several requests return the same lease, only one of them claims it and charges a cost for it.
// If the batch returns several leases of a counter, each settles one cost, and the last lease all
// others.
func (b *Batch) settleLease(at Time, i int) {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	lease := Charge{ID: c.ID, Policy: &c.Policy.Reserve.hold, Hits: c.Hits, Refund: true}
	var hits, claimed uint64
	if b.table == nil {
		hits = b.stored[i].reported.SettledHits
		claimed = b.stored[i].reported.Lease
	} else {
		hits, claimed = b.claimLease(at, lease)
	}
	*d = Decision{Reset: time.Second}
	// In a mirror only the store knows the hits of the lease, and releases them there.
	if mirrors := b.table != nil && b.table.mirror && c.Hits >= FirstLease; hits == 0 && claimed == 0 && !mirrors {
		return
	}
	isVoid := claimed > 0 && hits == 0 // since a reset; the costs are not charged
	isLast := true
	for j := i + 1; j < len(b.Charges) && isLast; j++ {
		isLast = !b.Charges[j].Refund || !b.Charges[j].sharesCounter(c)
	}
	costs := 0
	pause(betweenCharges)
	for j := range b.Charges {
		if o := &b.Charges[j]; !o.Refund && !o.Reserve && o.sharesCounter(c) && !b.settled[j] {
			costs++
			b.settled[j] = true
			cost := o.Hits
			if isVoid {
				cost = 0
			}
			b.Decisions[j], b.marks[j] = b.forceCharge(at, i, cost)
			if !isLast {
				break
			}
		}
	}
	if costs == 0 && !c.Policy.Reserve.release {
		b.forceCharge(at, i, hits)
	}
	pause(betweenCharges)
	d.Charged = hits
	switch lease.Hits = claimed; {
	case b.table != nil:
		b.companionBatch(lease).decideCharge(at, 0)
	case !isVoid:
		b.dropStoredReservation(i, hits)
	}
}

// claimLease replaces the nonce of a returned lease, so that no other request can return it. The
// hits stay held under the new lease. claimLease returns the hits and the new lease, 0 if the lease is
// not valid. A valid lease has no hits after a reset.
func (b *Batch) claimLease(at Time, lease Charge) (hits, claimed uint64) {
	a := b.companionBatch(lease)
	for v := &a.view; ; {
		a.read(at, 0, v)
		var valid uint64
		hits, valid = v.leaseHits(lease.Policy, lease.Hits, at)
		switch {
		case valid == 0 && v.unchanged():
			return 0, 0
		case valid > 0 && v.lockCells():
			claimed = v.renewLease(&lease)
			v.slot.word.Store(nextVersion(v.word, v.word&payloadMask))
			return hits, claimed
		}
	}
}

// forceCharge charges hits to the counter of charge i regardless of the limit. The decision that it
// returns is never Over.
func (b *Batch) forceCharge(at Time, i int, hits uint64) (Decision, int64) {
	c := &b.Charges[i]
	a := b.companionBatch(Charge{ID: c.ID, Hits: hits})
	forced := &b.companion.forcedPolicy
	*forced = *c.Policy
	forced.CountRefused = true
	forced.Reserve = nil
	a.Charges[0].Policy = forced
	if b.table == nil { // the counter was reported by a store
		a.stored = append(a.stored[:0], storedCounter{reported: *b.reported(i)})
		if k := b.stored[b.stored[i].first]; k.changed {
			a.stored[0].state = k.state
			a.stored[0].changed = true
		}
		a.decideCharge(at, 0)
		if a.stored[0].changed {
			b.writeStored(i, &a.view, a.stored[0].state)
		}
	} else {
		a.decideCharge(at, 0)
	}
	d := a.Decisions[0]
	d.Over = false
	d.RetryAfter = 0
	return d, a.marks[0]
}
