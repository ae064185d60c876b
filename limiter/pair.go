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
		x, y, c, d, tagX, tagY = y, x, d, c, tagY, tagX
	}
	space := t.space(b)
	// Both are looked at before either is taken: a processor that waits for the
	// memory of the one meanwhile fetches that of the other.
	first, ok := lookFast(at, space, tagX, c, b.hits(x), b, &b.Decisions[x])
	if !ok {
		return false
	}
	second, ok := lookFast(at, space, tagY, d, b.hits(y), b, &b.Decisions[y])
	if !ok {
		return false
	}
	if b.refuses(x) || b.refuses(y) {
		if !first.leave(at, c.Policy, &b.Decisions[x]) || !second.leave(at, d.Policy, &b.Decisions[y]) {
			return false
		}
		b.Decisions[x].Refused, b.Decisions[y].Refused = true, true
		return true
	}
	pause(betweenCharges)
	if !first.take() {
		return false
	}
	pause(betweenCharges)
	if second.take() {
		return true
	}
	// The second was hit meanwhile, and may still have room.
	if t.charge(at, b, y); b.refuses(y) {
		b.marks[x] = first.mark(at, c.Policy)
		t.rollBack(at, b, x)
		return false
	}
	return true
}

// plain reports whether decidePair may serve the charge c, which is number i.
func (b *Batch) plain(c *Charge, i int) bool {
	return !c.Refund && c.Mode != Quota && !c.Policy.CountRefused && c.Policy.MaxWait == 0 && b.hits(i) > 0
}

// leave makes the decision d of a swap that is not to be taken say so, as
// Batch.leave does. It reports false if that takes more than the swap's word.
func (s *swap) leave(at instant, p *Policy, d *Decision) bool {
	if d.Over {
		return true
	}
	switch {
	case isBucket(p.Algorithm):
		lag, shift := lagOf(s.old, at.time())
		k := bucket{shift: shift, round: 1<<shift - 1}
		d.Reset = max(1, k.nanos(lag))
	case p.Algorithm == SlidingWindow && s.old&payloadMask == 0:
		return false // the cells tell when the last hit ceases to count
	default: // the window's end stays what it is
	}
	d.Remaining, d.Charged = d.Remaining+d.Charged, 0
	return true
}

// mark is state.mark for a swap that was taken.
func (s *swap) mark(at instant, p *Policy) int64 {
	switch {
	case isBucket(p.Algorithm):
		return int64(s.new &^ lifeBit) //nolint:gosec // bits
	case p.Algorithm == SlidingWindow:
		return p.ring().number(at.stamp())
	default: // FixedWindow
		return windowState(s.new, at, p).num
	}
}
