package limiter

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// maxReserveTries bounds how often a group peeks again because another
// request took the room it had seen. What is denied after the last try did lack
// room when it was tried.
const maxReserveTries = 4

// turnOf returns the turn of charge i. The lowest bit of its tag is 0.
func (b *Batch) turnOf(i int) turn {
	c := &b.Charges[i]
	t := turn{c.tag() >> 1, c.ID.Lo, i}
	if c.Policy.holds() {
		t.counter |= 1 << 63
	}
	return t
}

// before returns 1 if the counter of t comes before that of u, else 0, without a branch:
// nothing foretells which of two hashes is less.
func (t turn) before(u turn) uint64 {
	_, borrow := bits.Sub64(t.lo, u.lo, 0)
	_, borrow = bits.Sub64(t.counter, u.counter, borrow)
	return borrow
}

func (t turn) compare(u turn) int {
	return cmp.Or(int(u.before(t))-int(t.before(u)), t.index-u.index) //nolint:gosec // 0 or 1
}

// sortMembers fills b.members with the charges lo to hi, those of one counter
// next to each other and in request order. The order of counters is the same for
// all batches: two groups that reserve the same counters in the same order cannot
// each hold what the other lacks. Those where charges may wait come last: others
// that come to wait behind a charge are promised their times, so it cannot be
// given back.
func (b *Batch) sortMembers(lo, hi int) {
	n := hi - lo
	b.turns, b.members = slices.Grow(b.turns[:0], n)[:n], slices.Grow(b.members[:0], n)[:n]
	if n == 2 {
		first, second := b.turnOf(lo), b.turnOf(lo+1)
		swap := second.before(first)
		b.turns[swap], b.turns[1-swap] = first, second
	} else {
		for i := range b.turns {
			b.turns[i] = b.turnOf(lo + i)
		}
		slices.SortFunc(b.turns, turn.compare)
	}
	for i, t := range b.turns {
		b.members[i].turn = t
	}
}

// runEnd returns the end of the members on the same counter as the one at i.
func (b *Batch) runEnd(i int) int {
	j := i + 1
	for j < len(b.members) && b.members[j].counter == b.members[i].counter && b.members[j].lo == b.members[i].lo {
		j++
	}
	return j
}

// hits returns the hits of charge i that are left after the set-off.
func (b *Batch) hits(i int) uint64 {
	if b.offset {
		return b.left[i]
	}
	return b.Charges[i].Hits
}

// setOff sets refunds off against the charges on the same counter, both in
// request order. It leaves the rest of either in b.left, and what was set off in b.setOffs.
func (b *Batch) setOff() {
	b.sortMembers(0, len(b.Charges))
	b.left = slices.Grow(b.left[:0], len(b.Charges))[:len(b.Charges)]
	for i := range b.Charges {
		b.left[i] = b.Charges[i].Hits
	}
	b.setOffs, b.offset = b.setOffs[:0], true
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		c := lo // the first charge with hits left
		for r := lo; r < hi; r++ {
			if c := &b.Charges[b.members[r].index]; !c.Refund || c.Policy.UsesLeases() {
				continue
			}
			refund := &b.left[b.members[r].index]
			for ; c < hi && *refund > 0; c++ {
				i := b.members[c].index
				if b.Charges[i].Refund {
					continue
				}
				set := min(*refund, b.left[i])
				*refund -= set
				b.left[i] -= set
				if set > 0 {
					b.setOffs = append(b.setOffs, Offset{b.members[r].index, i, set})
				}
				if b.left[i] > 0 {
					break
				}
			}
		}
	}
}

// refundUncounted has the refund of s give back what was set off against the hits of a decided charge, if these do not
// count: the charge was denied, or had no room. This is a step of its own on the counter, as of a refund alone.
func (b *Batch) refundUncounted(at Time, s *Offset) {
	if s.Hits == 0 || !b.isUncounted(at, s.Charge) {
		return
	}
	i := s.Refund
	d, left := &b.Decisions[i], &b.left[i]
	first, rest, gave := *d, *left, b.gave(i)
	if b.table == nil { // a store tells no Rest if it has not made the refund yet
		told := &b.kept[i].told
		told.Stamp = cmp.Or(told.RefundStamp, b.kept[b.kept[i].first].newest, told.Time)
	}
	*left = s.Hits
	b.chargeCounter(at, i)
	d.Before, d.Denied = d.Before+gave, first.Denied
	d.Charged += first.Charged - b.Charges[i].Hits // both have what was set off
	*left, s.Hits = rest+s.Hits, 0
}

// isUncounted reports whether the hits of charge i, decided, do not count.
func (b *Batch) isUncounted(at Time, i int) bool {
	c, d := &b.Charges[i], &b.Decisions[i]
	return (d.Over || d.Denied) && d.Charged == 0 && (!c.Policy.CountRefused || b.serves(at, i))
}

// gave returns how many hits refund i, decided, took off its counter.
func (b *Batch) gave(i int) uint64 {
	charged, setOff := b.Decisions[i].Charged, b.Charges[i].Hits-b.hits(i)
	return charged - min(charged, setOff)
}

// quotaHasRoom reports whether a quota charge has room, by a peek at each. It
// charges nothing.
func (b *Batch) quotaHasRoom(at Time) bool {
	if b.QuotaPass {
		return true
	}
	for i := range b.Charges {
		if b.Charges[i].Mode != Quota {
			continue
		}
		if b.look(at, i, b.Budget, &b.spare); !b.spare.Over {
			return true
		}
	}
	return false
}

// look decides charge i into d as it would be decided now, and charges nothing.
func (b *Batch) look(at Time, i int, budget time.Duration, d *Decision) {
	c, v := &b.Charges[i], &b.view
	for b.read(at, i, v); ; b.read(at, i, v) {
		if _, ok := c.Policy.algorithm().decide(v, at, c, c.Hits, budget, v.state, d); ok {
			return
		}
	}
}

// decideGroup decides the charges lo to hi together. With deny they are denied, whatever room there is.
//
// Charges that do not depend on the others come first. The rest peeks at all its
// counters, so that a counter which is steadily full does not make the others be
// charged and given back each time. Then they are reserved in order, and given back
// if one has no room any more. Every counter keeps its bound at
// every moment, so what is admitted is always legal. What is denied lacked
// room, if only because of a reservation that was about to be given back.
func (b *Batch) decideGroup(at Time, lo, hi int, deny bool) {
	b.sortMembers(lo, hi)
	deny = b.settle(at) || deny
	for try := 1; ; try++ {
		reserved := 0
		ok := b.peekAll(at) && !deny
		if ok {
			if reserved = b.reserveAll(at); reserved == len(b.members) {
				return
			}
		}
		for i := reserved - 1; i >= 0; i-- {
			b.rollBack(at, b.members[i].index)
		}
		if !ok || try == maxReserveTries {
			b.leave(at, reserved)
			break
		}
	}
	for i := lo; i < hi; i++ {
		b.Decisions[i].Denied, b.Decisions[i].Wait = true, 0
	}
}

// denies reports whether charge i, decided, denies its group.
func (b *Batch) denies(i int) bool {
	return b.Charges[i].Mode == Enforce && b.Decisions[i].Over
}

// settle decides those members whose outcome the group cannot change, and drops them
// from b.members: refunds, charges that count when denied, and peeks at counters that the
// group does not charge. It reports whether one of them denies the group.
func (b *Batch) settle(at Time) bool {
	deny, rest := false, 0
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		charged := false // on the condition that the group is admitted
		for i := lo; i < hi; i++ {
			charge := b.members[i].index
			c := &b.Charges[charge]
			charged = charged || !c.Refund && (c.Reserve || !c.Policy.CountRefused) && b.hits(charge) > 0
		}
		for i := lo; i < hi; i++ {
			m := &b.members[i]
			c := &b.Charges[m.index]
			if b.isSettled(m.index) {
				continue
			}
			// Beside a charge with hits left a refund is fully set off.
			if charged && (c.Reserve || c.Refund && !c.Policy.UsesLeases() || !c.Refund && !c.Policy.CountRefused) {
				if rest++; rest <= i { // members are large
					b.members[rest-1] = *m
				}
				continue
			}
			b.charge(at, m.index)
			deny = deny || b.denies(m.index)
		}
	}
	b.members = b.members[:rest]
	return deny
}

// peekAll peeks at the counters of b.members and decides as if those with room were
// charged. What is left then is for reserve or leave to say. It reports whether none
// denies the group.
func (b *Batch) peekAll(at Time) bool {
	ok := true
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		ok = b.peek(at, b.members[lo:hi]) && ok
	}
	return ok
}

// peek is peekAll for the members on one counter.
func (b *Batch) peek(at Time, run []member) bool {
	v := &run[0].seen
	held := uint64(0)
	if i := b.reserving(run); i >= 0 { // before the counter is looked at
		held = b.held(at, i)
	}
	b.read(at, run[0].index, v)
	st, ok := v.state, true
	for i := range run {
		m := &run[i]
		c, d := &b.Charges[m.index], &b.Decisions[m.index]
		m.before = st
		if c.Reserve {
			if !b.judge(v, at, m.index, st, held) {
				return b.peek(at, run)
			}
			m.after, held, ok = st, held+d.Charged, ok && !b.denies(m.index)
			continue
		}
		if v.class == &outside {
			v.found = &b.kept[m.index].told
		}
		after := st
		var decided bool
		if b.serves(at, m.index) {
			decided = b.deny(v, at, m.index, st)
		} else {
			after, decided = c.Policy.algorithm().decide(v, at, c, b.hits(m.index), b.Budget, st, d)
		}
		if !decided {
			return b.peek(at, run)
		}
		if v.class.size > 0 { // while the cells are known to be true
			c.Policy.algorithm().finish(v, at, c.Policy, b.Budget, st, d)
		}
		m.after, st = after, after
		ok = ok && !b.denies(m.index)
	}
	if !v.same() {
		return b.peek(at, run)
	}
	return ok
}

// leave makes the decisions of b.members but the first reserved ones, which
// say what would be if they were charged, say what is.
func (b *Batch) leave(at Time, reserved int) {
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		for i := max(lo, reserved); i < hi; i++ {
			m := &b.members[i]
			c, d := &b.Charges[m.index], &b.Decisions[m.index]
			if c.Reserve {
				d.Remaining += d.Charged
			}
			if !c.Refund {
				d.Charged = 0
			}
			if v := &b.members[lo].seen; v.class.size == 0 && !c.Reserve { // else peek has done it
				c.Policy.algorithm().finish(v, at, c.Policy, b.Budget, m.before, d)
			}
		}
	}
}

// reserveAll charges what peekAll has decided, and returns how many members it
// has. It stops where a counter was hit meanwhile and now denies the group.
func (b *Batch) reserveAll(at Time) int {
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		pause(betweenCharges)
		if !b.reserve(at, b.members[lo:hi]) {
			return lo
		}
	}
	return len(b.members)
}

// reserve is reserveAll for the members on one counter.
func (b *Batch) reserve(at Time, run []member) bool {
	if b.reserving(run) >= 0 {
		return b.reserveRun(at, run)
	}
	first, last := &run[0], &run[len(run)-1]
	for {
		for i := range run {
			m := &run[i]
			p := b.Charges[m.index].Policy
			p.algorithm().finish(&first.seen, at, p, b.Budget, m.after, &b.Decisions[m.index])
			b.marks[m.index] = m.after.num
		}
		if b.write(at, first.index, &first.seen, last.after) {
			return true
		}
		if !b.peek(at, run) {
			return false
		}
	}
}

// reserving returns the first charge of the members that reserves, or -1.
func (b *Batch) reserving(run []member) int {
	for i := range run {
		if c := run[i].index; b.leases && b.Charges[c].Reserve {
			return c
		}
	}
	return -1
}

// reserveRun is reserve for members of which one reserves: each has two steps of its own.
func (b *Batch) reserveRun(at Time, run []member) bool {
	for i := range run {
		if b.charge(at, run[i].index); !b.denies(run[i].index) {
			continue
		}
		for ; i >= 0; i-- {
			b.rollBack(at, run[i].index)
		}
		return false
	}
	return true
}
