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
	n := len(b.Charges)
	if len(b.Decisions) != n || len(b.marks) != n {
		b.resize(n)
	}
	b.Denied, b.Wait, b.offset = false, 0, false

	if n > 1 && b.table != nil {
		b.table.Prefetch(b) // all at once, while the first is searched for
	}
	grouped, refunds, quota := b.survey()
	if refunds {
		b.setOff()
	}
	// If no quota has room even now, the groups with one are denied without touching
	// their other counters.
	deny := grouped && quota && !refunds && !b.quotaHasRoom(now)
	var hi int
	for lo := 0; lo < n; lo = hi {
		hi = b.groupEnd(lo)
		if hi-lo == 1 {
			b.charge(now, lo)
		} else {
			b.decideGroup(now, lo, hi, deny)
		}
	}
	b.conclude(now, quota && !b.quotaPassed())
}

// resize gives b room for n decisions.
func (b *Batch) resize(n int) {
	b.Decisions = slices.Grow(b.Decisions[:0], n)[:n]
	b.marks = slices.Grow(b.marks[:0], n)[:n]
}

// survey reports whether b has groups of several charges, refunds, and quota
// charges.
func (b *Batch) survey() (grouped, refunds, quota bool) {
	for i := range b.Charges {
		c := &b.Charges[i]
		grouped = grouped || i > 0 && c.Group == b.Charges[i-1].Group
		refunds = refunds || c.Refund
		quota = quota || c.Mode == Quota
	}
	return grouped, refunds, quota
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
// groups that have one are denied and give back what they took until they knew.
func (b *Batch) conclude(at Time, quotaDenies bool) {
	var hi int
	for lo := 0; lo < len(b.Charges); lo = hi {
		hi = b.groupEnd(lo)
		denied := false
		for i := lo; i < hi; i++ {
			c, d := &b.Charges[i], &b.Decisions[i]
			denied = denied || d.Denied || d.Over && c.Mode == Enforce || quotaDenies && c.Mode == Quota
		}
		if denied {
			b.Denied = true
			for i := hi - 1; i >= lo; i-- {
				b.rollBack(at, i)
				b.Decisions[i].Denied = true
			}
		}
		for i := lo; i < hi; i++ {
			if b.Charges[i].Mode != Watch {
				b.Wait = max(b.Wait, b.Decisions[i].Wait)
			}
		}
	}
	if b.Denied {
		b.Wait = 0
	}
}

// charge decides charge i alone, in one atomic step.
func (b *Batch) charge(at Time, i int) {
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
