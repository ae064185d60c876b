package limiter

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Reserve is how a limit lets requests reserve hits whose number is known only later, such as tokens of an answer
// that has yet to be made. What is reserved is held beside the counter, not charged to it: a charge that
// reserves passes if all that is used and held, and itself, fits the limit. When the lease comes back, what it
// cost is charged in place of what it held. So holds count across the edges of windows, and nothing is ever
// refunded to a window that is over or to a bucket that has drained.
//
// At each moment what is used and held is within the limit. So a counter exceeds it by what requests cost more than
// they had reserved, and by nothing else.
type Reserve struct {
	hold    Policy // of what is held, which is a counter of its own under the same ID
	release bool
}

// MaxReservations is how many reservations a counter holds at most.
const MaxReservations = MaxLog / 2

// NewReserve returns a reserve: see [Reserve.Set].
func NewReserve(reservations uint32, life time.Duration, release bool) *Reserve {
	r := new(Reserve)
	r.Set(reservations, life, release)
	return r
}

// Set makes r a reserve of the given number of reservations at once, 1 to [MaxReservations]. Each ends after life at
// most, as if it had not been made. If one ends earlier without a cost, what it held is charged, or free with release.
func (r *Reserve) Set(reservations uint32, life time.Duration, release bool) {
	*r = Reserve{hold: Policy{Algorithm: Concurrency, Limit: reservations, Window: life, wide: true}, release: release}
	r.hold.Prepare()
}

// SetLongestLife says for how long reservations on the same counter are held at most under any other rule that it may have had.
// Those that a rule of before has made go on for that long, whatever the life is now.
func (r *Reserve) SetLongestLife(longest time.Duration) {
	r.hold.longest = longest
	r.hold.Prepare()
}

// LongestLife returns the longest life of a reservation under any rule of the counter.
func (r *Reserve) LongestLife() time.Duration { return max(r.hold.longest, r.hold.Window) }

// Life returns for how long a reservation is held at most.
func (r *Reserve) Life() time.Duration { return r.hold.Window }

// MaxReservations returns how many are held at most.
func (r *Reserve) MaxReservations() uint32 { return r.hold.Limit }

// HoldPolicy returns the policy of what is held. It is not for charges.
func (r *Reserve) HoldPolicy() *Policy { return &r.hold }

// ReleasesWithoutCost reports whether reservations without a cost are as if they had not been made.
func (r *Reserve) ReleasesWithoutCost() bool { return r.release }

func (r *Reserve) validate(p *Policy) error {
	switch p.Algorithm {
	case FixedWindow, SlidingWindow, TokenBucket:
	case SlidingLog, LeakyBucket, Concurrency:
		return errors.New("reserve: this algorithm cannot")
	}
	if r.hold.Limit < 1 || r.hold.Limit > MaxReservations {
		return fmt.Errorf("reserve: %d reservations at once: must be 1 to %d", r.hold.Limit, MaxReservations)
	}
	return r.hold.Validate()
}

// An aside is what reservations of a batch need beside it.
type aside struct {
	Batch // of one charge: on what is held, or one that must not be denied

	forced Policy // of that, and of one that a penalty denies
	denied Charge // that one
}

// beside makes c the only charge of what b needs beside it.
func (b *Batch) beside(c Charge) *Batch {
	if b.aside == nil {
		b.aside = &aside{}
	}
	b.aside.poison()
	a := &b.aside.Batch
	a.extra, a.offset = false, false
	a.Charges, a.table, a.Partition, a.Clock = append(a.Charges[:0], c), b.table, b.Partition, b.Clock
	a.resize(1)
	return a
}

// held returns how many hits are held beside the counter of charge i.
func (b *Batch) held(at Time, i int) uint64 {
	if b.table == nil {
		return b.told(i).HeldHits
	}
	c := &b.Charges[i]
	a := b.beside(Charge{ID: c.ID, Policy: &c.Policy.Reserve.hold})
	a.charge(at, 0)
	return a.Decisions[0].Before
}

// judge decides charge i, which reserves, on a counter in the state st beside which so many hits are held. It
// reports false if v is no longer true.
func (b *Batch) judge(v *view, at Time, i int, st state, held uint64) bool {
	c, d := &b.Charges[i], &b.Decisions[i]
	p, a := c.Policy, c.Policy.algorithm()
	if _, ok := a.decide(v, at, c, held+c.Hits, 0, st, d); !ok {
		return false
	}
	before := d.Before + held
	if d.Over {
		if _, ok := a.decide(v, at, c, c.Hits, 0, st, d); !ok {
			return false
		}
		if !d.Over { // any of what is held may be settled at any moment
			d.Over, d.RetryAfter = true, time.Second
		}
	}
	a.finish(v, at, p, 0, st, d)
	d.Before, d.Charged = before, 0
	if !d.Over {
		d.Charged = c.Hits
		d.Remaining -= min(d.Remaining, held+c.Hits)
	}
	return v.same()
}

// hold decides charge i, which reserves, in two steps: it is held first, and then the counter is looked at. Who
// settles goes the other way. So at each moment all that is or was about to be charged is seen in one of the two
// places, and what passes fits the limit whatever others do.
func (b *Batch) hold(at Time, i int) {
	c, d, v := &b.Charges[i], &b.Decisions[i], &b.view
	look := func(held uint64) {
		for b.read(at, i, v); !b.judge(v, at, i, v.state, held); {
			b.read(at, i, v)
		}
	}
	if look(b.held(at, i)); d.Over || c.Hits == 0 {
		return
	}
	full := func() { d.Over, d.RetryAfter, d.Reset, d.Remaining, d.Charged = true, time.Second, time.Second, 0, 0 }
	if b.table == nil {
		t := b.told(i)
		if t.Reservations >= uint64(c.Policy.Reserve.hold.Limit) {
			full()
			return
		}
		b.marks[i] = int64(b.kept[i].told.Lease) //nolint:gosec // a lease
		t.HeldHits, t.Reservations = t.HeldHits+c.Hits, t.Reservations+1
		return
	}
	a := b.beside(Charge{ID: c.ID, Policy: &c.Policy.Reserve.hold, Hits: c.Hits})
	if a.charge(at, 0); a.Decisions[0].Over {
		full()
		return
	}
	b.marks[i] = a.marks[0]
	pause(betweenCharges)
	if look(a.Decisions[0].Before); d.Over {
		a.release(at, 0)
	}
}

// drop gives back what charge i reserved.
func (b *Batch) drop(at Time, i int) {
	c, d := &b.Charges[i], &b.Decisions[i]
	if b.table == nil {
		b.unreserve(i, d.Charged)
	} else {
		b.undo(at, Charge{ID: c.ID, Policy: &c.Policy.Reserve.hold, Hits: c.Hits}, Decision{Charged: d.Charged}, b.marks[i])
	}
	d.Remaining, d.Charged = d.Remaining+d.Charged, 0
}

// unreserve drops a reservation of so many hits that a store told of.
func (b *Batch) unreserve(i int, hits uint64) {
	t := b.told(i)
	t.HeldHits, t.Reservations = t.HeldHits-min(t.HeldHits, hits), t.Reservations-min(t.Reservations, 1)
}

// settleLeases decides the leases of reservations that the batch brings back, and the costs beside them. A cost is
// charged whatever room there is, in place of what was held.
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

// isSettled reports whether settleLeases has decided charge i.
func (b *Batch) isSettled(i int) bool {
	return b.extra && b.leases && i < len(b.settled) && b.settled[i]
}

// settleLease charges the cost first and then drops what was held: see hold. Of two who bring the same lease one
// finds it gone, and takes back what it charged.
func (b *Batch) settleLease(at Time, i int) {
	c, d := &b.Charges[i], &b.Decisions[i]
	lease := Charge{ID: c.ID, Policy: &c.Policy.Reserve.hold, Hits: c.Hits, Refund: true}
	var hits uint64
	if b.table == nil {
		hits = b.kept[i].told.SettledHits
	} else {
		a := b.beside(lease)
		a.look(at, 0, 0, &a.Decisions[0])
		hits = a.Decisions[0].Charged
	}
	*d = Decision{Reset: time.Second}
	// Of a mirror the store knows what the lease holds, which is dropped there.
	if mirrors := b.table != nil && b.table.mirror && c.Hits >= FirstLease; hits == 0 && !mirrors {
		return
	}
	cost := -1
	for j := range b.Charges {
		if o := &b.Charges[j]; !o.Refund && !o.Reserve && o.ID == c.ID && o.Policy.Algorithm == c.Policy.Algorithm && !b.settled[j] {
			cost, b.settled[j] = j, true
			break
		}
	}
	var did Decision
	var mark int64
	switch {
	case cost >= 0:
		did, mark = b.force(at, i, b.Charges[cost].Hits)
		b.Decisions[cost], b.marks[cost] = did, mark
	case !c.Policy.Reserve.release:
		did, mark = b.force(at, i, hits)
	}
	pause(betweenCharges)
	if b.table == nil {
		b.unreserve(i, hits)
		d.Charged = hits
		return
	}
	a := b.beside(lease)
	if a.charge(at, 0); a.Decisions[0].Charged == hits {
		d.Charged = hits
		return
	}
	if did.Charged > 0 {
		b.undo(at, Charge{ID: c.ID, Policy: c.Policy, Hits: did.Charged}, did, mark)
	}
	if cost >= 0 {
		b.settled[cost] = false // it is a charge like others
	}
}

// undo gives back what the charge c beside b's took, by its decision and its mark.
func (b *Batch) undo(at Time, c Charge, did Decision, mark int64) {
	a := b.beside(c)
	a.Decisions[0], a.marks[0] = did, mark
	a.release(at, 0)
}

// force charges the counter of charge i hits whatever room there is. It returns a decision that is never over.
func (b *Batch) force(at Time, i int, hits uint64) (Decision, int64) {
	c := &b.Charges[i]
	a := b.beside(Charge{ID: c.ID, Hits: hits})
	forced := &b.aside.forced
	*forced = *c.Policy
	forced.CountRefused, forced.Reserve = true, nil
	a.Charges[0].Policy = forced
	if b.table == nil { // the store has told of the counter
		a.kept = append(a.kept[:0], kept{told: *b.told(i)})
		if k := b.kept[b.kept[i].first]; k.changed {
			a.kept[0].state, a.kept[0].changed = k.state, true
		}
		a.charge(at, 0)
		if a.kept[0].changed {
			b.remember(i, &a.view, a.kept[0].state)
		}
	} else {
		a.charge(at, 0)
	}
	d := a.Decisions[0]
	d.Over, d.RetryAfter = false, 0
	return d, a.marks[0]
}
