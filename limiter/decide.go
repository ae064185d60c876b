package limiter

import (
	"runtime"
	"slices"
)

// Decide decides all charges of b at the time now, together. b.Charges must be
// filled; the answers are in b.Decisions and b.Denied.
//
// Groups are decided one after another, each seeing what those before it took.
func (t *Table) Decide(now Time, b *Batch) {
	b.table = t
	b.decide(now)
	runtime.KeepAlive(t) // its memory is not in Go's heap
}

// decide decides b on the counters of b.table, or on what a store told of them.
func (b *Batch) decide(now Time) {
	if b.poison(); b.table != nil {
		b.poisonKept()
	}
	n := len(b.Charges)
	if len(b.Decisions) != n || len(b.marks) != n {
		b.resize(n)
	}
	b.Denied, b.Wait, b.offset = false, 0, false

	if n == 1 {
		if c := &b.Charges[0]; c.Policy.Reserve == nil && c.Policy.Penalty == nil { // the most common case
			b.extra = false
			b.chargeCounter(now, 0)
			d := &b.Decisions[0]
			if b.denies(0) || c.Mode == Quota && !b.quotaPassed() { // it has nothing to give back
				b.Denied, d.Denied = true, true
			} else if c.Mode != Watch {
				b.Wait = d.Wait
			}
			return
		}
	}
	if n > 1 && b.table != nil {
		b.table.Prefetch(b) // all at once, while the first is searched for
	}
	grouped, refunds, quota, leases := b.survey()
	if b.extra = leases || b.penal; b.penal {
		b.sentenced(now)
	}
	if refunds {
		b.setOff()
	}
	if b.leases = leases; leases {
		b.settleLeases(now)
	}
	// If no quota has room even now, the groups with one are denied without touching
	// their other counters.
	quotaDenies := grouped && quota && !refunds && !b.quotaHasRoom(now)
	if leases {
		b.decideLeases(now, quotaDenies)
	} else {
		var hi int
		for lo := 0; lo < n; lo = hi {
			if hi = b.groupEnd(lo); hi-lo == 1 {
				b.charge(now, lo)
			} else {
				b.decideOne(now, lo, hi, quotaDenies, false)
			}
		}
	}
	b.conclude(now, quota && !b.quotaPassed(), leases, nil)
	if b.offset {
		for k := range b.setOffs {
			b.refundUncounted(now, &b.setOffs[k])
		}
	}
	if b.penal {
		b.sentence(now)
	}
}

// decideLeases decides the groups of a batch with leases. Those that take leases come last: if the request is
// denied anyway, they only peek. So it does not hold places of others even for a moment.
func (b *Batch) decideLeases(at Time, quotaDenies bool) {
	deny := false
	for _, takes := range [...]bool{false, true} {
		var hi int
		for lo := 0; lo < len(b.Charges); lo = hi {
			if hi = b.groupEnd(lo); b.takesLease(lo, hi) == takes {
				b.decideOne(at, lo, hi, quotaDenies, deny && takes)
				deny = deny || b.deniedBy(lo, hi)
			}
		}
	}
}

// decideOne decides the group from lo to hi. With deny it is denied; with quotaDenies, if it has a quota charge.
func (b *Batch) decideOne(at Time, lo, hi int, quotaDenies, deny bool) {
	if hi-lo == 1 && !deny {
		if !b.isSettled(lo) {
			b.charge(at, lo)
		}
		return
	}
	for i := lo; quotaDenies && i < hi; i++ {
		deny = deny || b.Charges[i].Mode == Quota
	}
	b.decideGroup(at, lo, hi, deny)
}

// deniedBy reports whether a charge from lo to hi, decided, denies its group.
func (b *Batch) deniedBy(lo, hi int) bool {
	for i := lo; i < hi; i++ {
		if b.Decisions[i].Denied || b.denies(i) {
			return true
		}
	}
	return false
}

// takesLease reports whether a charge from lo to hi holds what it takes under a lease. So it depends on the
// whole request: one that is denied holds nothing.
func (b *Batch) takesLease(lo, hi int) bool {
	for i := lo; i < hi; i++ {
		if b.Charges[i].takes() {
			return true
		}
	}
	return false
}

// resize gives b room for n decisions.
func (b *Batch) resize(n int) {
	b.Decisions = slices.Grow(b.Decisions[:0], n)[:n]
	b.marks = slices.Grow(b.marks[:0], n)[:n]
}

// survey reports whether b has groups of several charges, refunds but for those of leases, quota
// charges, and charges of policies that give leases. It makes b.penal valid.
func (b *Batch) survey() (grouped, refunds, quota, leases bool) {
	b.penal = false
	for i := range b.Charges {
		c := &b.Charges[i]
		if i > 0 && c.Group == b.Charges[i-1].Group {
			grouped = true
		}
		if c.Mode == Quota {
			quota = true
		}
		b.penal = b.penal || c.Penalises()
		if c.Policy.UsesLeases() {
			leases = true
		} else if c.Refund {
			refunds = true
		}
	}
	return grouped, refunds, quota, leases
}

// groupEnd returns the end of the group that begins at lo.
func (b *Batch) groupEnd(lo int) int {
	hi := lo + 1
	for hi < len(b.Charges) && b.Charges[hi].Group == b.Charges[lo].Group {
		hi++
	}
	return hi
}

// quotaPassed reports whether a quota charge had room.
func (b *Batch) quotaPassed() bool {
	if b.QuotaPass {
		return true
	}
	for i := range b.Charges {
		if b.Charges[i].Mode == Quota && !b.Decisions[i].Over {
			return true
		}
	}
	return false
}

// conclude marks what was denied. With quotaDenies every quota charge lacked room:
// groups that have one are denied and give back what they took until they knew. So do
// groups that took leases if any group is denied. It calls deny, if that is not nil, for each charge that becomes denied.
func (b *Batch) conclude(at Time, quotaDenies, leases bool, deny func(i int)) {
	var hi int
	for lo := 0; lo < len(b.Charges); lo = hi {
		hi = b.groupEnd(lo)
		denied := false
		for i := lo; i < hi; i++ {
			c, d := &b.Charges[i], &b.Decisions[i]
			if d.Denied || d.Over && c.Mode == Enforce || quotaDenies && c.Mode == Quota {
				denied = true
			}
			if c.Mode != Watch {
				b.Wait = max(b.Wait, d.Wait)
			}
		}
		if denied {
			b.Denied = true
			b.denyGroup(at, lo, hi, deny)
		}
	}
	if !b.Denied {
		return
	}
	b.Wait = 0
	for lo := 0; leases && lo < len(b.Charges); lo = hi {
		if hi = b.groupEnd(lo); b.takesLease(lo, hi) && !b.Decisions[lo].Denied {
			b.denyGroup(at, lo, hi, deny)
		}
	}
}

// denyGroup denies the charges from lo to hi, which give back what they took: by deny if that is not nil.
func (b *Batch) denyGroup(at Time, lo, hi int, deny func(i int)) {
	for i := hi - 1; i >= lo; i-- {
		if d := &b.Decisions[i]; deny == nil {
			b.rollBack(at, i)
			d.Denied = true
		} else if !d.Denied {
			deny(i)
		}
	}
}

// charge decides charge i alone, in one atomic step, or two if it reserves.
func (b *Batch) charge(at Time, i int) {
	if !b.extra || !b.chargeBeside(at, i) {
		b.chargeCounter(at, i)
	}
}

// chargeCounter is charge for what neither reserves nor is under a penalty.
func (b *Batch) chargeCounter(at Time, i int) {
	c, d := &b.Charges[i], &b.Decisions[i]
	p, v := c.Policy, &b.view
	a := p.algorithm()
	for {
		b.read(at, i, v)
		after, ok := a.decide(v, at, c, b.hits(i), b.Budget, v.state, d)
		if !ok {
			continue
		}
		a.finish(v, at, p, b.Budget, after, d) // reads cells, of which the write says whether they were true
		if b.write(at, i, v, after) {
			b.marks[i] = after.num
			return
		}
	}
}

// chargeBeside decides charge i if it reserves, or if a penalty denies it. It reports whether it has.
func (b *Batch) chargeBeside(at Time, i int) bool {
	switch {
	case b.Charges[i].Reserve:
		b.hold(at, i)
	case b.serves(at, i):
		b.serve(at, i)
	default:
		return false
	}
	return true
}

// Cancel gives back what b's charges hold that wait or have a lease, for a request that was cancelled at
// the time now while it was held. A turn comes back only if no later one has been given
// out, since others were promised theirs. What came back is no
// longer in the Charged and Wait of its decision.
func (t *Table) Cancel(now Time, b *Batch) {
	b.table = t
	for i, d := range slices.Backward(b.Decisions) {
		if d.Wait > 0 || b.Lease(i) > 0 {
			b.release(now, i)
		}
	}
	b.Wait = 0
}

// rollBack undoes what charge i took on the condition that its group would be
// admitted.
func (b *Batch) rollBack(at Time, i int) {
	c, d := &b.Charges[i], &b.Decisions[i]
	if d.Charged > 0 && !c.Refund && (c.Reserve || !c.Policy.CountRefused) && !b.isSettled(i) {
		pause(beforeRelease)
		b.release(at, i)
	}
	d.Wait = 0
}

// release gives back what charge i took. If the window it was taken from has
// passed, there is nothing to give back; a bucket's turn that others wait behind
// is lost and stays charged.
func (b *Batch) release(at Time, i int) {
	c, d, v := &b.Charges[i], &b.Decisions[i], &b.view
	if c.Reserve {
		b.drop(at, i)
		return
	}
	p := c.Policy
	a := p.algorithm()
	for {
		b.read(at, i, v)
		after, lost, left := v.state, d.Wait > 0, &b.spare
		if v.slot != nil || v.class == &outside {
			now := at
			if b.Clock != nil && v.class != &outside { // read after the word, it is later than all that drained in it
				now = max(b.Clock(), at)
			}
			after, lost = a.undo(v, at, now, p, b.marks[i], d)
		}
		if *left, left.Wait = *d, 0; !lost {
			a.finish(v, at, p, b.Budget, after, left)
			left.Charged, left.Remaining = 0, d.Remaining+d.Charged // as if it had not been charged
		}
		if b.write(at, i, v, after) {
			*d = *left
			return
		}
	}
}

// Reset makes the counter that charge i of b names equal to a new one at the time now,
// and returns what was used of it: as [Decision.Before]. An absent counter stays absent.
// For a peek, which changes nothing, decide a charge of 0 hits.
//
// It happens at one moment, before or after any charge on the counter. Three things
// that began before it go on. A window of a clock that was ahead stays the current
// one. A group that is denied, or a cancelled call, gives back what it took before the
// reset, though that is gone already, if the window is the same. Calls that a leaky
// bucket holds keep the times that they were promised, while new ones do not wait
// behind them. A bucket that was reset may be reclaimed at once, so that its slot can
// change hands sooner than time would let it; see Table.insert.
func (t *Table) Reset(now Time, b *Batch, i int) (used uint64) {
	c, v := &b.Charges[i], &b.view
	a := c.Policy.algorithm()
	defer runtime.KeepAlive(t) // its memory is not in Go's heap
	b.table = t
	if c.Policy.Reserve != nil {
		used = t.Reset(now, b.beside(Charge{ID: c.ID, Policy: &c.Policy.Reserve.hold}), 0)
	}
	if c.Policy.Penalty != nil {
		t.Reset(now, b.beside(Charge{ID: c.ID, Policy: besidePolicy}), 0)
	}
	for {
		b.read(now, i, v)
		if v.slot == nil {
			return used
		}
		if _, ok := a.decide(v, now, c, 0, 0, v.state, &b.spare); !ok { // a peek, for Before
			continue
		}
		after := a.empty(now, c.Policy, v.state)
		if after == v.state && v.same() || after != v.state && v.replace(c.Policy, after) {
			return used + b.spare.Before
		}
	}
}
