package limiter

import (
	"runtime"
	"slices"
)

// Decide decides all charges of b at the time now and stores the results in b.Decisions, b.Denied
// and b.Wait. Groups are decided one after another; each sees the charges of the groups before it.
func (t *Table) Decide(now Time, b *Batch) {
	b.table = t
	b.decide(now)
	runtime.KeepAlive(t) // its memory is not in Go's heap
}

// decide decides b on the counters of b.table, or on those that a store reported.
func (b *Batch) decide(now Time) {
	if b.poison(); b.table != nil {
		b.poisonStored()
	}
	n := len(b.Charges)
	if len(b.Decisions) != n || len(b.marks) != n {
		b.resize(n)
	}
	b.Denied = false
	b.Wait = 0
	b.offsetDone = false

	if n == 1 {
		if c := &b.Charges[0]; c.Policy.Reserve == nil && c.Policy.Penalty == nil { // the most common case
			b.special = false
			b.choices = false
			b.chargeCounter(now, 0)
			d := &b.Decisions[0]
			if b.denies(0) || c.Mode == Quota && !b.quotaPassed() { // there is nothing to undo
				b.Denied = true
				d.Denied = true
			} else if c.Mode != Watch {
				b.Wait = d.Wait
			}
			return
		}
	}
	if n > 1 && b.table != nil {
		b.table.Prefetch(b) // in parallel, while the first is searched
	}
	grouped, refunds, quota, leases := b.classifyCharges()
	b.special = leases || b.usesPenalties
	if b.usesPenalties {
		b.readPenalties(now)
	}
	if refunds {
		b.offsetRefunds()
	}
	b.usesLeases = leases
	if leases {
		b.settleLeases(now)
	}
	// If all quotas are over their limits already, groups with a quota charge are denied without
	// charging their other counters.
	quotaDenies := grouped && quota && !refunds && !b.quotaHasRoom(now)
	if leases {
		b.decideLeases(now, quotaDenies)
	} else {
		var hi int
		for lo := 0; lo < n; lo = hi {
			if hi = b.groupEnd(lo); hi-lo == 1 {
				b.decideCharge(now, lo)
			} else {
				b.decideGroup(now, lo, hi, quotaDenies, false)
			}
		}
	}
	b.resolveGroups(now, quota && !b.quotaPassed(), leases, nil)
	if b.offsetDone {
		for k := range b.offsets {
			b.refundUncounted(now, &b.offsets[k])
		}
	}
	if b.usesPenalties {
		b.applyPenalties(now)
	}
}

// decideLeases decides the groups of a batch with leases. Groups that acquire leases come last: if
// the request is denied anyway, they only peek and do not block permits for others.
func (b *Batch) decideLeases(at Time, quotaDenies bool) {
	deny := false
	for _, acquiring := range [...]bool{false, true} {
		var hi int
		for lo := 0; lo < len(b.Charges); lo = hi {
			if hi = b.groupEnd(lo); b.acquiresLeases(lo, hi) == acquiring {
				b.decideGroup(at, lo, hi, quotaDenies, deny && acquiring)
				deny = deny || b.deniedBy(lo, hi)
			}
		}
	}
}

// decideGroup decides the group [lo, hi). It is denied if deny is set, or if quotaDenies is set and
// it has a quota charge.
func (b *Batch) decideGroup(at Time, lo, hi int, quotaDenies, deny bool) {
	if hi-lo == 1 && !deny {
		if !b.isSettled(lo) {
			b.decideCharge(at, lo)
		}
		return
	}
	if b.choices && !deny && b.Charges[lo].Choice == FirstChoice && b.choiceEnd(lo) == hi {
		b.decideChoice(at, lo, true)
		return
	}
	for i := lo; quotaDenies && i < hi; i++ {
		deny = deny || b.Charges[i].Mode == Quota
	}
	b.decideTogether(at, lo, hi, deny)
}

// deniedBy reports whether a decided charge in [lo, hi) denies its group.
func (b *Batch) deniedBy(lo, hi int) bool {
	for i := lo; i < hi; i++ {
		if b.Decisions[i].Denied || b.denies(i) {
			return true
		}
	}
	return false
}

// acquiresLeases reports whether a charge in [lo, hi) acquires a lease. Such a group depends on the
// complete request: a denied request holds no lease.
func (b *Batch) acquiresLeases(lo, hi int) bool {
	for i := lo; i < hi; i++ {
		if b.Charges[i].acquiresLease() {
			return true
		}
	}
	return false
}

// resize makes room in b for n decisions.
func (b *Batch) resize(n int) {
	b.Decisions = slices.Grow(b.Decisions[:0], n)[:n]
	b.marks = slices.Grow(b.marks[:0], n)[:n]
}

// classifyCharges reports whether b has groups of several charges, refunds other than returned
// leases, quota charges, and charges of policies that grant leases. It also sets b.usesPenalties and
// b.choices.
func (b *Batch) classifyCharges() (grouped, refunds, quota, leases bool) {
	b.usesPenalties = false
	b.choices = false
	for i := range b.Charges {
		c := &b.Charges[i]
		if i > 0 && c.Group == b.Charges[i-1].Group {
			grouped = true
		}
		if c.Mode == Quota {
			quota = true
		}
		b.usesPenalties = b.usesPenalties || c.Penalises()
		b.choices = b.choices || c.Choice != NoChoice
		if c.Policy.UsesLeases() {
			leases = true
		} else if c.Refund {
			refunds = true
		}
	}
	return grouped, refunds, quota, leases
}

// groupEnd returns the end of the group that starts at lo.
func (b *Batch) groupEnd(lo int) int {
	hi := lo + 1
	for hi < len(b.Charges) && b.Charges[hi].Group == b.Charges[lo].Group {
		hi++
	}
	return hi
}

// quotaPassed reports whether a quota charge is within its limit.
func (b *Batch) quotaPassed() bool {
	if b.QuotaPass {
		return true
	}
	for i := range b.Charges {
		if d := &b.Decisions[i]; b.Charges[i].Mode == Quota && !d.Over && !d.Skipped {
			return true
		}
	}
	return false
}

// resolveGroups marks denied groups and undoes their charges. If quotaDenies is set, groups with a
// quota charge are denied. If any group is denied, groups that acquired leases are denied, too. If
// deny is not nil, it is called for each charge that becomes denied, in place of undoing the
// charge.
func (b *Batch) resolveGroups(at Time, quotaDenies, leases bool, deny func(i int)) {
	var hi int
	for lo := 0; lo < len(b.Charges); lo = hi {
		hi = b.groupEnd(lo)
		denied := false
		for i := lo; i < hi; i++ {
			c := &b.Charges[i]
			d := &b.Decisions[i]
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
		if hi = b.groupEnd(lo); b.acquiresLeases(lo, hi) && !b.Decisions[lo].Denied {
			b.denyGroup(at, lo, hi, deny)
		}
	}
}

// denyGroup denies the charges in [lo, hi). It undoes them, or calls deny if that is not nil.
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

// decideCharge decides charge i alone, in one atomic step, or two for a reservation.
func (b *Batch) decideCharge(at Time, i int) {
	if !b.special || !b.decideSpecial(at, i) {
		b.chargeCounter(at, i)
	}
}

// chargeCounter decides a charge that is neither a reservation nor under a penalty.
func (b *Batch) chargeCounter(at Time, i int) {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	p := c.Policy
	v := &b.view
	a := p.algorithm()
	for {
		b.read(at, i, v)
		after, ok := a.decide(v, at, c, b.hits(i), b.Budget, v.state, d)
		if !ok {
			continue
		}
		a.finish(v, at, p, b.Budget, after, d) // reads cells; write fails if they have changed
		if b.write(at, i, v, after) {
			b.marks[i] = after.mark
			return
		}
	}
}

// decideSpecial decides charge i if it is a reservation or under a penalty. It reports whether it
// has.
func (b *Batch) decideSpecial(at Time, i int) bool {
	switch {
	case b.Charges[i].Reserve:
		b.reserveHits(at, i)
	case b.underPenalty(at, i):
		b.decidePenalised(at, i)
	default:
		return false
	}
	return true
}

// Cancel undoes the charges of b that are delayed or have a lease, after the request was cancelled
// at the time now while its response was delayed. A delayed charge is undone only if no later hit
// was scheduled behind it, since the start times of later hits are fixed. Cancel clears Charged and
// Wait of the decisions that it undoes.
func (t *Table) Cancel(now Time, b *Batch) {
	b.table = t
	for i, d := range slices.Backward(b.Decisions) {
		if d.Wait > 0 || b.Lease(i) > 0 {
			b.undoCharge(now, i)
		}
	}
	b.Wait = 0
}

// rollBack undoes a charge that was made under the condition that its group is admitted.
func (b *Batch) rollBack(at Time, i int) {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	if d.Charged > 0 && c.countsIfAdmitted() && !b.isSettled(i) {
		pause(beforeUndo)
		b.undoCharge(at, i)
	}
	d.Wait = 0
}

// undoCharge undoes charge i. It does nothing if the window of the charge has passed. A delayed hit
// of a bucket stays charged if later hits are scheduled behind it.
func (b *Batch) undoCharge(at Time, i int) {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	v := &b.view
	if c.Reserve {
		b.dropReservation(at, i)
		return
	}
	p := c.Policy
	a := p.algorithm()
	for {
		b.read(at, i, v)
		after := v.state
		lost := d.Wait > 0
		left := &b.scratch
		if v.slot != nil || v.class == &externalClass {
			now := at
			if b.Clock != nil && v.class != &externalClass { // read after the word, so that it covers everything that has drained
				now = max(b.Clock(), at)
			}
			after, lost = a.undo(v, at, now, p, b.marks[i], d)
		}
		*left = *d
		left.Wait = 0
		if !lost {
			a.finish(v, at, p, b.Budget, after, left)
			left.Charged = 0 // as if not charged
			left.Remaining = d.Remaining + d.Charged
		}
		if b.write(at, i, v, after) {
			*d = *left
			return
		}
	}
}

// Reset makes the counter of charge i of b unused at the time now and returns its previous usage,
// as in [Decision.Before]. An absent counter stays absent. To read the usage without a change,
// decide a charge of 0 hits.
//
// A reset is atomic with respect to charges. It does not affect operations that started earlier:
// the window of a clock that was ahead remains the current one; a denied group or a cancelled
// request still undoes its charge if the window is the same; delayed hits of a leaky bucket keep
// their start times, but new hits do not wait behind them. The end of a request that has
// reserved hits charges no cost, unless a later reservation has taken its place. A bucket that was
// reset may be reclaimed at once, so its slot can change its owner sooner than by expiry; see
// Table.insert.
func (t *Table) Reset(now Time, b *Batch, i int) (used uint64) {
	c := &b.Charges[i]
	v := &b.view
	a := c.Policy.algorithm()
	defer runtime.KeepAlive(t) // its memory is not in Go's heap
	b.table = t
	if c.Policy.Reserve != nil {
		used = t.Reset(now, b.companionBatch(Charge{ID: c.ID, Policy: &c.Policy.Reserve.hold}), 0)
	}
	if c.Policy.Penalty != nil {
		t.Reset(now, b.companionBatch(c.penaltyCharge()), 0)
	}
	for {
		b.read(now, i, v)
		if v.slot == nil {
			return used
		}
		if _, ok := a.decide(v, now, c, 0, 0, v.state, &b.scratch); !ok { // a peek, for Before
			continue
		}
		after := a.resetState(now, c.Policy, v.state)
		if after == v.state && v.unchanged() || after != v.state && v.replace(c.Policy, after) {
			return used + b.scratch.Before
		}
	}
}
