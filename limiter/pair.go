package limiter

// decidePair is decideGroup for what is most common, two plain limits such as 60 a
// minute and 10000 a day on counters that have their slots. It does the same in the
// same order, without sorting and without what only other groups need. It reports
// false, and has charged nothing, for all else.
func (t *Table) decidePair(now Time, b *Batch, lo int) bool {
	x, y := lo, lo+1
	cx, cy := &b.Charges[x], &b.Charges[y]
	hiX, hiY := cx.ID.Hi>>kindBits, cy.ID.Hi>>kindBits
	if !cx.plain() || !cy.plain() || hiX == hiY {
		return false // of equal ones there is one pair in 2^60, but for charges on one counter
	}
	if hiX > hiY { // as byCounter has them
		x, y, cx, cy = y, x, cy, cx
	}
	dx, dy := &b.Decisions[x], &b.Decisions[y]
	partition := t.partition(b)
	// Both are looked at before either is taken: a processor that waits for the
	// memory of the one meanwhile fetches that of the other.
	first, ok := lookFast(now, partition, cx, dx, b, x)
	if !ok {
		return false
	}
	second, ok := lookFast(now, partition, cy, dy, b, y)
	if !ok {
		return false
	}
	if (dx.Over || dy.Over) && (b.refuses(x) || b.refuses(y)) {
		left := b.leaveFast(now, first, x) && b.leaveFast(now, second, y)
		dx.Denied, dy.Denied = left, left
		return left
	}
	pause(betweenCharges)
	if !first.take() {
		return false
	}
	pause(betweenCharges)
	took := second.take()
	b.taken(first, x) // after the second's swap, which would wait for its stores
	if took {
		b.taken(second, y)
		return true
	}
	return t.reservePair(now, b, first, x, y)
}

// reservePair is what decidePair does if the second was hit meanwhile, and may still
// have room.
func (t *Table) reservePair(now Time, b *Batch, first swap, x, y int) bool {
	if t.charge(now, b, y); b.refuses(y) {
		at := instantOf(now)
		b.marks[x] = b.markOf(at, first, x)
		t.rollBack(at, b, x)
		return false
	}
	return true
}

// plain reports whether decidePair may serve the charge.
func (c *Charge) plain() bool {
	return !c.Refund && c.Mode != Quota && !c.Policy.CountRefused && c.Policy.MaxWait == 0 && c.Hits > 0
}

// leaveFast makes the decision of charge i, whose swap is not to be taken, say so,
// as leave does. It reports false if that takes more than was looked at.
func (b *Batch) leaveFast(now Time, s swap, i int) bool {
	p, d := b.Charges[i].Policy, &b.Decisions[i]
	switch {
	case d.Over:
		return true
	case isBucket(p.Algorithm):
		lag, shift := lagOf(s.old, now)
		k := bucket{shift: shift, round: 1<<shift - 1}
		d.Reset = max(1, k.nanos(lag))
	case p.Algorithm == FixedWindow: // its end stays what it is
	case s.slot.word.Load() != s.old:
		return false // what is beside the word may be another one's
	case p.Algorithm == SlidingLog:
		d.Reset = b.stamps[i].reset
	case s.old&payloadMask == 0:
		return false // the cells tell when the last hit ceases to count
	}
	d.Remaining, d.Charged = d.Remaining+d.Charged, 0
	return true
}

// markOf is state.mark for a swap that was taken.
func (b *Batch) markOf(at instant, s swap, i int) int64 {
	switch p := b.Charges[i].Policy; {
	case isBucket(p.Algorithm):
		return int64(s.new &^ lifeBit) //nolint:gosec // bits
	case p.Algorithm == SlidingWindow:
		return p.ring().number(at.stamp())
	case p.Algorithm == SlidingLog:
		return b.stamps[i].time
	default: // FixedWindow
		return windowState(s.new, at, p).num
	}
}
