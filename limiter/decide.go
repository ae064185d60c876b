package limiter

import "slices"

// Decide decides all charges of b at the time now, together. b.Charges must be
// filled; the answers are in b.Decisions and b.Refused.
//
// Groups are decided one after another, each seeing what those before it took.
func (t *Table) Decide(now Time, b *Batch) {
	n := len(b.Charges)
	b.Decisions = slices.Grow(b.Decisions[:0], n)[:n]
	b.Refused, b.offset = false, false

	grouped, refunds, quota := b.survey()
	if refunds && n > 1 {
		b.setOff()
	}
	at := instantOf(now)
	if !grouped {
		for i := range b.Charges {
			t.charge(at, b, i)
		}
		b.concludeSingle(quota && !b.quotaPassed())
		return
	}
	// If no quota has room even now, the groups with one refuse without touching
	// their other counters.
	refuse := quota && !refunds && !t.quotaHasRoom(at, b)
	var hi int
	for lo := 0; lo < n; lo = hi {
		hi = b.groupEnd(lo)
		if hi-lo == 1 {
			t.charge(at, b, lo)
		} else {
			t.decideGroup(at, b, lo, hi, refuse)
		}
	}
	t.conclude(at, b, quota && !b.quotaPassed())
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

// concludeSingle is conclude where every charge is a group of its own: one that
// refuses has not been charged.
func (b *Batch) concludeSingle(quotaRefuses bool) {
	for i := range b.Charges {
		c, d := &b.Charges[i], &b.Decisions[i]
		if d.Over && (c.Mode == Enforce || c.Mode == Quota && quotaRefuses) {
			d.Refused, b.Refused = true, true
		}
	}
}

// conclude marks what refused. With quotaRefuses every quota charge lacked room:
// groups that have one refuse and give back what they took until they knew.
func (t *Table) conclude(at instant, b *Batch, quotaRefuses bool) {
	var hi int
	for lo := 0; lo < len(b.Charges); lo = hi {
		hi = b.groupEnd(lo)
		refused := false
		for i := lo; i < hi; i++ {
			c, d := &b.Charges[i], &b.Decisions[i]
			refused = refused || d.Refused || d.Over && c.Mode == Enforce || quotaRefuses && c.Mode == Quota
		}
		if !refused {
			continue
		}
		b.Refused = true
		for i := lo; i < hi; i++ {
			t.rollBack(at, &b.Charges[i], &b.Decisions[i])
			b.Decisions[i].Refused = true
		}
	}
}

// charge decides charge i alone, in one atomic step.
func (t *Table) charge(at instant, b *Batch, i int) {
	c, d, hits := &b.Charges[i], &b.Decisions[i], b.hits(i)
	p := c.Policy
	tag := tagOf(c.ID, p.Algorithm)
	for {
		v := t.read(at, tag, c.ID, p)
		after := v.used
		switch {
		case c.Refund:
			after -= min(after, hits)
		case p.CountRefused:
			after += min(hits, maxCount-after)
		case fits(after, hits, p.Limit):
			after += hits
		}
		if after == v.used || t.write(at, tag, c.ID, p, v, after) {
			d.answer(at, c, hits, v.used, v.end)
			if c.Refund {
				d.refund(c, hits, v.used-after)
			} else {
				d.take(p, after-v.used)
			}
			return
		}
	}
}

// fits reports whether a counter with used hits has room for more. For 0 hits
// that is whether it is not beyond its limit already.
func fits(used, hits uint64, limit uint32) bool {
	return hits <= uint64(limit) && used <= uint64(limit)-hits
}

// answer answers c, of which hits are left, on a counter that has used before;
// nothing is charged yet.
func (d *Decision) answer(at instant, c *Charge, hits, before uint64, end int64) {
	p := c.Policy
	reset := at.until(end)
	d.Refused, d.Charged, d.Before, d.Reset = false, 0, before, reset
	if c.Refund || fits(before, hits, p.Limit) {
		d.Over, d.Remaining, d.RetryAfter = false, room(p, before), 0
		return
	}
	d.Over, d.Remaining, d.RetryAfter = true, 0, reset
	if hits > uint64(p.Limit) {
		d.RetryAfter = Never
	}
}

// room returns how many single hits fit beside used ones.
func room(p *Policy, used uint64) uint64 {
	return uint64(p.Limit) - min(used, uint64(p.Limit))
}

// take notes that the counter took hits.
func (d *Decision) take(p *Policy, hits uint64) {
	d.Charged = hits
	if !d.Over {
		d.Remaining = room(p, d.Before+hits)
	}
}

// refund notes that of the refund c hits were left after the set-off, and that
// the counter gave back so many.
func (d *Decision) refund(c *Charge, left, gaveBack uint64) {
	d.Charged = c.Hits - left + gaveBack
	d.Remaining = room(c.Policy, d.Before-gaveBack)
}

// rollBack undoes what c took on the condition that its group did not refuse. If
// the window it was taken from has passed, there is nothing to give back.
func (t *Table) rollBack(at instant, c *Charge, d *Decision) {
	p := c.Policy
	if c.Refund || p.CountRefused || d.Charged == 0 {
		return
	}
	tag, end := tagOf(c.ID, p.Algorithm), at.plus(d.Reset)
	for {
		v := t.read(at, tag, c.ID, p)
		if v.slot == nil || v.end != end {
			break
		}
		after := v.used - min(v.used, d.Charged)
		if after == v.used || t.write(at, tag, c.ID, p, v, after) {
			break
		}
	}
	d.Charged, d.Remaining = 0, room(p, d.Before)
}
