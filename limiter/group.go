package limiter

import (
	"cmp"
	"slices"
)

// maxReserveTries bounds how often a group is looked at again because another
// request took the room it had seen. What is refused after the last try did lack
// room when it was tried.
const maxReserveTries = 4

// A member is one charge of a batch, to be put in the order of counters.
type member struct {
	tag, lo uint64 // the counter
	index   int    // into Batch.Charges
}

// A plan is what was seen of a counter and what a group's members would make of
// it.
type plan struct {
	seen  view
	after uint64
}

func byCounter(a, b member) int {
	switch {
	case a.tag != b.tag:
		return cmp.Compare(a.tag, b.tag)
	case a.lo != b.lo:
		return cmp.Compare(a.lo, b.lo)
	default:
		return cmp.Compare(a.index, b.index)
	}
}

// sortMembers fills b.members with the charges lo to hi, those of one counter
// next to each other and in request order. The order of counters is the same for
// all batches: two groups that reserve the same counters in the same order cannot
// each hold what the other lacks.
func (b *Batch) sortMembers(lo, hi int) {
	b.members = slices.Grow(b.members[:0], hi-lo)
	for i := lo; i < hi; i++ {
		c := &b.Charges[i]
		b.members = append(b.members, member{tag: tagOf(c.ID, c.Policy.Algorithm), lo: c.ID.Lo, index: i})
	}
	slices.SortFunc(b.members, byCounter)
}

// runEnd returns the end of the members on the same counter as the one at i.
func (b *Batch) runEnd(i int) int {
	j := i + 1
	for j < len(b.members) && b.members[j].tag == b.members[i].tag && b.members[j].lo == b.members[i].lo {
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
// request order, and leaves the rest of either in b.left.
func (b *Batch) setOff() {
	b.sortMembers(0, len(b.Charges))
	b.left = slices.Grow(b.left[:0], len(b.Charges))[:len(b.Charges)]
	for i := range b.Charges {
		b.left[i] = b.Charges[i].Hits
	}
	b.offset = true
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		c := lo // the first charge with hits left
		for r := lo; r < hi; r++ {
			if !b.Charges[b.members[r].index].Refund {
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
				if b.left[i] > 0 {
					break
				}
			}
		}
	}
}

// quotaHasRoom reports whether a quota charge has room, by a look at each. It
// charges nothing.
func (t *Table) quotaHasRoom(at instant, b *Batch) bool {
	if b.QuotaPass {
		return true
	}
	for i := range b.Charges {
		c := &b.Charges[i]
		if c.Mode != Quota {
			continue
		}
		v := t.read(at, tagOf(c.ID, c.Policy.Algorithm), c.ID, c.Policy)
		if fits(v.used, c.Hits, c.Policy.Limit) {
			return true
		}
	}
	return false
}

// decideGroup decides the charges lo to hi together. quotaRefuses says that a
// quota charge among them refuses.
//
// Charges that do not depend on the others come first. Of the rest all counters
// are looked at, so that a counter which is steadily full does not make the
// others be charged and given back each time; then they are reserved in order,
// and given back if one has no room any more. Every counter keeps its bound at
// every moment, so what is admitted is always legal; what is refused lacked
// room, if only because of a reservation that was about to be given back.
func (t *Table) decideGroup(at instant, b *Batch, lo, hi int, quotaRefuses bool) {
	b.sortMembers(lo, hi)
	refuse := t.settle(at, b)
	for i := lo; i < hi; i++ {
		refuse = refuse || quotaRefuses && b.Charges[i].Mode == Quota
	}
	for try := 1; ; try++ {
		if !t.lookAll(at, b) || refuse {
			break
		}
		if t.reserveAll(at, b) {
			return
		}
		for _, m := range b.members {
			t.rollBack(at, &b.Charges[m.index], &b.Decisions[m.index])
		}
		if try == maxReserveTries {
			break
		}
	}
	for i := lo; i < hi; i++ {
		b.Decisions[i].Refused = true
	}
}

// refuses reports whether charge i, decided, makes its group refuse.
func (b *Batch) refuses(i int) bool {
	return b.Charges[i].Mode == Enforce && b.Decisions[i].Over
}

// settle decides those members whose outcome the group cannot change (refunds,
// charges that count when refused, and looks at counters that the group does not
// charge) and drops them from b.members. It reports whether one of them makes the
// group refuse.
func (t *Table) settle(at instant, b *Batch) bool {
	refuse, rest := false, b.members[:0]
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		charged := false // on the condition that the group does not refuse
		for _, m := range b.members[lo:hi] {
			c := &b.Charges[m.index]
			charged = charged || !c.Refund && !c.Policy.CountRefused && b.hits(m.index) > 0
		}
		for _, m := range b.members[lo:hi] {
			c := &b.Charges[m.index]
			// Beside a charge with hits left a refund is fully set off.
			if charged && (c.Refund || !c.Policy.CountRefused) {
				rest = append(rest, m)
				continue
			}
			t.charge(at, b, m.index)
			refuse = refuse || b.refuses(m.index)
		}
	}
	b.members = rest
	return refuse
}

// lookAll looks at the counters of b.members, decides as if those with room were
// charged, and leaves a plan for each. It reports whether none makes the group
// refuse.
func (t *Table) lookAll(at instant, b *Batch) bool {
	ok := true
	b.plans = b.plans[:0]
	var hi int
	for lo := 0; lo < len(b.members); lo = hi {
		hi = b.runEnd(lo)
		p, fit := t.look(at, b, b.members[lo:hi])
		b.plans = append(b.plans, p)
		ok = ok && fit
	}
	return ok
}

// look is lookAll for the members on one counter.
func (t *Table) look(at instant, b *Batch, run []member) (plan, bool) {
	c := &b.Charges[run[0].index]
	v := t.read(at, run[0].tag, c.ID, c.Policy)
	used, ok := v.used, true
	for _, m := range run {
		c, d, hits := &b.Charges[m.index], &b.Decisions[m.index], b.hits(m.index)
		d.answer(at, c, hits, used, v.end)
		switch {
		case c.Refund:
			d.refund(c, hits, 0)
		case d.Over:
			ok = ok && !b.refuses(m.index)
		default:
			used += hits
		}
	}
	return plan{seen: v, after: used}, ok
}

// reserveAll charges what lookAll has planned. It stops and returns false where
// a counter was hit meanwhile and makes the group refuse now.
func (t *Table) reserveAll(at instant, b *Batch) bool {
	var hi int
	for lo, n := 0, 0; lo < len(b.members); lo, n = hi, n+1 {
		hi = b.runEnd(lo)
		if !t.reserve(at, b, b.members[lo:hi], b.plans[n]) {
			return false
		}
	}
	return true
}

// reserve is reserveAll for the members on one counter.
func (t *Table) reserve(at instant, b *Batch, run []member, p plan) bool {
	tag, c := run[0].tag, &b.Charges[run[0].index]
	for p.after != p.seen.used && !t.write(at, tag, c.ID, c.Policy, p.seen, p.after) {
		var ok bool
		if p, ok = t.look(at, b, run); !ok {
			return false
		}
	}
	for _, m := range run {
		c, d := &b.Charges[m.index], &b.Decisions[m.index]
		if !c.Refund && !d.Over {
			d.take(c.Policy, b.hits(m.index))
		}
	}
	return true
}
