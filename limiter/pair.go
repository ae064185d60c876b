package limiter

// decidePair is decideGroup for what is most common, two plain limits such as 60 a
// minute and 10000 a day on counters that have their slots. It does the same in the
// same order, without sorting and without what only other groups need. It reports
// false, and has charged nothing, for all else.
func (t *Table) decidePair(at instant, b *Batch, lo int) bool {
	x, y := lo, lo+1
	c, d := &b.Charges[x], &b.Charges[y]
	if !b.plain(c, x) || !b.plain(d, y) {
		return false
	}
	tagX, tagY := tagOf(c.ID, c.Policy.Algorithm), tagOf(d.ID, d.Policy.Algorithm)
	switch {
	case tagX == tagY && c.ID.Lo == d.ID.Lo:
		return false
	case tagX > tagY || tagX == tagY && c.ID.Lo > d.ID.Lo:
		x, y, tagX, tagY = y, x, tagY, tagX
	}
	space := t.space(b)
	// Both are looked at before either is taken: a processor that waits for the
	// memory of the one meanwhile fetches that of the other.
	first, ok := lookFast(at, space, tagX, b, x)
	if !ok {
		return false
	}
	second, ok := lookFast(at, space, tagY, b, y)
	if !ok {
		return false
	}
	if b.refuses(x) || b.refuses(y) {
		if !b.leaveFast(at, &first, x) || !b.leaveFast(at, &second, y) {
			return false
		}
		b.Decisions[x].Refused, b.Decisions[y].Refused = true, true
		return true
	}
	pause(betweenCharges)
	if !b.take(&first, x) {
		return false
	}
	pause(betweenCharges)
	if b.take(&second, y) {
		return true
	}
	// The second was hit meanwhile, and may still have room.
	if t.charge(at, b, y); b.refuses(y) {
		b.marks[x] = b.markOf(at, &first, x)
		t.rollBack(at, b, x)
		return false
	}
	return true
}

// plain reports whether decidePair may serve the charge c, which is number i.
func (b *Batch) plain(c *Charge, i int) bool {
	return !c.Refund && c.Mode != Quota && !c.Policy.CountRefused && c.Policy.MaxWait == 0 && b.hits(i) > 0
}

// leaveFast makes the decision of charge i, whose swap is not to be taken, say so,
// as leave does. It reports false if that takes more than was looked at.
func (b *Batch) leaveFast(at instant, s *swap, i int) bool {
	p, d := b.Charges[i].Policy, &b.Decisions[i]
	switch {
	case d.Over:
		return true
	case isBucket(p.Algorithm):
		lag, shift := lagOf(s.old, at.time())
		k := bucket{shift: shift, round: 1<<shift - 1}
		d.Reset = max(1, k.nanos(lag))
	case p.Algorithm == SlidingLog:
		d.Reset = b.stamps[i].reset
	case p.Algorithm == SlidingWindow && (s.old&payloadMask == 0 || s.slot.word.Load() != s.old):
		return false // the cells tell when the last hit ceases to count, or the note may be another one's
	default: // the window's end stays what it is
	}
	d.Remaining, d.Charged = d.Remaining+d.Charged, 0
	return true
}

// markOf is state.mark for a swap that was taken.
func (b *Batch) markOf(at instant, s *swap, i int) int64 {
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
