package limiter

import (
	"cmp"
	"math/bits"
	"slices"
)

// maxGroupTries bounds how often a group is peeked at again because other requests used the
// capacity between the peek and the charge. A group that is denied after the last try did exceed a
// limit then.
const maxGroupTries = 4

// keyOf returns the sort key of charge i. The lowest bit of its tag is 0.
func (b *Batch) keyOf(i int) counterKey {
	c := &b.Charges[i]
	t := counterKey{c.tag() >> 1, c.ID.Lo, i}
	if c.Policy.delays() {
		t.counter |= 1 << 63
	}
	return t
}

// before returns 1 if t sorts before u, else 0. It has no branch, since the order of two hashes is
// unpredictable.
func (t counterKey) before(u counterKey) uint64 {
	_, borrow := bits.Sub64(t.lo, u.lo, 0)
	_, borrow = bits.Sub64(t.counter, u.counter, borrow)
	return borrow
}

func (t counterKey) compare(u counterKey) int {
	return cmp.Or(int(u.before(t))-int(t.before(u)), t.index-u.index) //nolint:gosec // 0 or 1
}

// sortMembers fills b.members with the charges [lo, hi), grouped by counter and in request order
// for each counter. All batches use the same order of counters, so two groups without choices cannot
// each charge a counter that the other one needs. Counters that may delay hits come last, since a
// charge cannot be undone once later hits are scheduled behind it.
func (b *Batch) sortMembers(lo, hi int) {
	n := hi - lo
	b.order = slices.Grow(b.order[:0], n)[:n]
	b.members = slices.Grow(b.members[:0], n)[:n]
	if n == 2 {
		first := b.keyOf(lo)
		second := b.keyOf(lo + 1)
		swap := second.before(first)
		b.order[swap] = first
		b.order[1-swap] = second
	} else {
		for i := range b.order {
			b.order[i] = b.keyOf(lo + i)
		}
		slices.SortFunc(b.order, counterKey.compare)
	}
	for i, t := range b.order {
		b.members[i].counterKey = t
	}
}

// runEnd returns the end of the members on the same counter as member i.
func (b *Batch) runEnd(i int) int {
	j := i + 1
	for j < len(b.members) && b.members[j].counter == b.members[i].counter && b.members[j].lo == b.members[i].lo {
		j++
	}
	return j
}

// hits returns the hits of charge i that remain after offsetRefunds.
func (b *Batch) hits(i int) uint64 {
	if b.offsetDone {
		return b.hitsLeft[i]
	}
	return b.Charges[i].Hits
}

// offsetRefunds offsets refunds against charges on the same counter, both in request order. It
// stores the remaining hits in b.hitsLeft and the offsets in b.offsets.
func (b *Batch) offsetRefunds() {
	b.sortMembers(0, len(b.Charges))
	b.hitsLeft = slices.Grow(b.hitsLeft[:0], len(b.Charges))[:len(b.Charges)]
	for i := range b.Charges {
		b.hitsLeft[i] = b.Charges[i].Hits
	}
	b.offsets = b.offsets[:0]
	b.offsetDone = true
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		c := lo // the first charge with hits left
		for r := lo; r < hi; r++ {
			if c := &b.Charges[b.members[r].index]; !c.Refund || c.Policy.UsesLeases() {
				continue
			}
			refund := &b.hitsLeft[b.members[r].index]
			for ; c < hi && *refund > 0; c++ {
				i := b.members[c].index
				if b.Charges[i].Refund || b.Charges[i].Choice != NoChoice {
					continue // the limit that a choice charges is not known yet
				}
				set := min(*refund, b.hitsLeft[i])
				*refund -= set
				b.hitsLeft[i] -= set
				if set > 0 {
					b.offsets = append(b.offsets, Offset{b.members[r].index, i, set})
				}
				if b.hitsLeft[i] > 0 {
					break
				}
			}
		}
	}
}

// refundUncounted refunds the hits of s if its decided charge does not count because it was denied
// or over its limit. This is a separate step on the counter, like a refund alone.
func (b *Batch) refundUncounted(at Time, s *Offset) {
	if s.Hits == 0 || !b.isUncounted(at, s.Charge) {
		return
	}
	i := s.Refund
	d := &b.Decisions[i]
	left := &b.hitsLeft[i]
	first := *d
	rest := *left
	gave := b.refunded(i)
	if b.table == nil { // a store reports no RefundStamp before it makes the refund
		reported := &b.stored[i].reported
		reported.Stamp = cmp.Or(reported.RefundStamp, b.stored[b.stored[i].first].newest, reported.Time)
	}
	*left = s.Hits
	b.chargeCounter(at, i)
	d.Before += gave
	d.Denied = first.Denied
	d.Charged += first.Charged - b.Charges[i].Hits // both include the offset hits
	*left = rest + s.Hits
	s.Hits = 0
}

// countsIfAdmitted reports whether the hits of c count only if its group is admitted.
func (c *Charge) countsIfAdmitted() bool { return !c.Refund && (c.Reserve || !c.Policy.CountRefused) }

// isUncounted reports whether the hits of the decided charge i do not count.
func (b *Batch) isUncounted(at Time, i int) bool {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	return (d.Over || d.Denied) && d.Charged == 0 && (!c.Policy.CountRefused || b.underPenalty(at, i))
}

// refunded returns how many hits the decided refund i took off its counter.
func (b *Batch) refunded(i int) uint64 {
	charged := b.Decisions[i].Charged
	setOff := b.Charges[i].Hits - b.hits(i)
	return charged - min(charged, setOff)
}

// quotaHasRoom peeks at the counters of the quota charges and reports whether one is within its
// limit.
func (b *Batch) quotaHasRoom(at Time) bool {
	if b.QuotaPass {
		return true
	}
	for i := range b.Charges {
		if b.Charges[i].Mode != Quota {
			continue
		}
		if b.peekCharge(at, i); !b.scratch.Over {
			return true
		}
	}
	return false
}

// peekCharge stores in b.scratch the decision that charge i would get now, and charges nothing.
func (b *Batch) peekCharge(at Time, i int) {
	c := &b.Charges[i]
	v := &b.view
	for b.read(at, i, v); ; b.read(at, i, v) {
		if _, ok := c.Policy.algorithm().decide(v, at, c, c.Hits, b.Budget, v.state, &b.scratch); ok {
			return
		}
	}
}

// decideTogether decides the charges [lo, hi) as a group. If deny is set the group is denied in any
// case.
//
// Charges that do not depend on the others are decided first. Then all other counters are peeked
// at, so that a counter that is permanently over its limit does not cause charges on the others.
// Then the members are charged in order and the choices decided, and all are undone if one is over
// its limit by now. Every counter stays within its bound at any moment, so an admitted group is
// always legal. A denied group did exceed a limit, if only because of a charge of another group that
// was about to be undone.
func (b *Batch) decideTogether(at Time, lo, hi int, deny bool) {
	b.sortMembers(lo, hi)
	deny = b.decideIndependent(at) || deny
	for try := 1; ; try++ {
		reserved := 0
		ok := b.peekChoices(at, lo, hi)
		ok = b.peekAll(at) && ok && !deny
		if ok {
			if reserved = b.chargeAll(at); reserved == len(b.members) && b.chargeChoices(at, lo, hi) {
				return
			}
		}
		for i := reserved - 1; i >= 0; i-- {
			b.rollBack(at, b.members[i].index)
		}
		if !ok || try == maxGroupTries {
			b.markUncharged(at, reserved)
			break
		}
	}
	for i := lo; i < hi; i++ {
		b.Decisions[i].Denied = true
		b.Decisions[i].Wait = 0
	}
}

// denies reports whether the decided charge i denies its group.
func (b *Batch) denies(i int) bool {
	return b.Charges[i].Mode == Enforce && b.Decisions[i].Over
}

// decideIndependent decides the members whose outcome does not depend on the group, and removes
// them from b.members: refunds, charges that count when denied, and peeks at counters that the
// group does not charge. It reports whether one of them denies the group.
func (b *Batch) decideIndependent(at Time) bool {
	deny := false
	rest := 0
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		charged := false // the group, if admitted, charges the counter
		for i := lo; i < hi; i++ {
			charge := b.members[i].index
			c := &b.Charges[charge]
			charged = charged || c.countsIfAdmitted() && c.Choice == NoChoice && b.hits(charge) > 0
		}
		for i := lo; i < hi; i++ {
			m := &b.members[i]
			c := &b.Charges[m.index]
			if b.isSettled(m.index) || c.Choice != NoChoice {
				continue
			}
			// If a charge on the counter has hits left, the refund was offset completely.
			if charged && (c.Reserve || c.Refund && !c.Policy.UsesLeases() || !c.Refund && !c.Policy.CountRefused) {
				if rest++; rest <= i { // a member is large; copy it only if it moves
					b.members[rest-1] = *m
				}
				continue
			}
			b.decideCharge(at, m.index)
			deny = deny || b.denies(m.index)
		}
	}
	b.members = b.members[:rest]
	return deny
}

// peekAll peeks at the counters of b.members and decides as if members within their limits were
// charged. It reports whether no member denies the group.
func (b *Batch) peekAll(at Time) bool {
	ok := true
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		ok = b.peek(at, b.members[lo:hi]) && ok
	}
	return ok
}

// peek is peekAll for the members of one counter.
func (b *Batch) peek(at Time, run []member) bool {
	v := &run[0].seen
	held := uint64(0)
	if i := b.firstReserving(run); i >= 0 { // before the counter is read
		held = b.heldHits(at, i)
	}
	b.read(at, run[0].index, v)
	st := v.state
	ok := true
	for i := range run {
		m := &run[i]
		c := &b.Charges[m.index]
		d := &b.Decisions[m.index]
		m.before = st
		if c.Reserve {
			if !b.decideReserve(v, at, m.index, st, held) {
				return b.peek(at, run)
			}
			m.after, held, ok = st, held+d.Charged, ok && !b.denies(m.index)
			continue
		}
		if v.class == &externalClass {
			v.reported = &b.stored[m.index].reported
		}
		after := st
		var decided bool
		if b.underPenalty(at, m.index) {
			decided = b.denyPenalised(v, at, m.index, st)
		} else {
			after, decided = c.Policy.algorithm().decide(v, at, c, b.hits(m.index), b.Budget, st, d)
		}
		if !decided {
			return b.peek(at, run)
		}
		if v.class.size > 0 { // while the cells are known to be unchanged
			c.Policy.algorithm().finish(v, at, c.Policy, b.Budget, st, d)
		}
		m.after = after
		st = after
		ok = ok && !b.denies(m.index)
	}
	if !v.unchanged() {
		return b.peek(at, run)
	}
	return ok
}

// markUncharged rewrites the decisions of members[reserved:]: they were computed as if charged, and
// afterwards describe the uncharged counter.
func (b *Batch) markUncharged(at Time, reserved int) {
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		for i := max(lo, reserved); i < hi; i++ {
			m := &b.members[i]
			c := &b.Charges[m.index]
			d := &b.Decisions[m.index]
			if c.Reserve {
				d.Remaining += d.Charged
			}
			if !c.Refund {
				d.Charged = 0
			}
			if v := &b.members[lo].seen; v.class.size == 0 && !c.Reserve { // otherwise peek has called finish
				c.Policy.algorithm().finish(v, at, c.Policy, b.Budget, m.before, d)
			}
		}
	}
}

// chargeAll charges the members as decided by peekAll. It stops at a counter that was hit meanwhile
// and now denies the group, and returns the number of charged members.
func (b *Batch) chargeAll(at Time) int {
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		pause(betweenCharges)
		if !b.chargeRun(at, b.members[lo:hi]) {
			return lo
		}
	}
	return len(b.members)
}

// chargeRun is chargeAll for the members of one counter.
func (b *Batch) chargeRun(at Time, run []member) bool {
	if b.firstReserving(run) >= 0 {
		return b.chargeReservingRun(at, run)
	}
	first := &run[0]
	last := &run[len(run)-1]
	for {
		for i := range run {
			m := &run[i]
			p := b.Charges[m.index].Policy
			p.algorithm().finish(&first.seen, at, p, b.Budget, m.after, &b.Decisions[m.index])
			b.marks[m.index] = m.after.mark
		}
		if b.write(at, first.index, &first.seen, last.after) {
			return true
		}
		if !b.peek(at, run) {
			return false
		}
	}
}

// firstReserving returns the first charge of the members that is a reservation, or -1.
func (b *Batch) firstReserving(run []member) int {
	for i := range run {
		if c := run[i].index; b.usesLeases && b.Charges[c].Reserve {
			return c
		}
	}
	return -1
}

// chargeReservingRun is chargeRun for members with a reservation, which takes two steps.
func (b *Batch) chargeReservingRun(at Time, run []member) bool {
	for i := range run {
		if b.decideCharge(at, run[i].index); !b.denies(run[i].index) {
			continue
		}
		for ; i >= 0; i-- {
			b.rollBack(at, run[i].index)
		}
		return false
	}
	return true
}
