package limiter

// decidePair is decideGroup for what is most common, two plain limits such as 60 a
// minute and 10000 a day that both have room. It does the same in the same order,
// without sorting and without what only other groups need. It reports false, and has
// charged nothing, for all else and where the group refuses.
func (t *Table) decidePair(at instant, b *Batch, lo int) bool {
	x, y := lo, lo+1
	if !b.plain(x) || !b.plain(y) {
		return false
	}
	c, d := &b.Charges[x], &b.Charges[y]
	tagX, tagY := tagOf(c.ID, c.Policy.Algorithm), tagOf(d.ID, d.Policy.Algorithm)
	switch {
	case tagX == tagY && c.ID.Lo == d.ID.Lo:
		return false
	case tagX > tagY || tagX == tagY && c.ID.Lo > d.ID.Lo:
		x, y, c, d, tagX, tagY = y, x, d, c, tagY, tagX
	}
	space := t.space(b)
	first, ok := lookFast(at, space, tagX, c, b.hits(x), b, &b.Decisions[x])
	if !ok || b.Decisions[x].Over {
		return false
	}
	second, ok := lookFast(at, space, tagY, d, b.hits(y), b, &b.Decisions[y])
	if !ok || b.Decisions[y].Over {
		return false
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

// plain reports whether decidePair may serve the charge i.
func (b *Batch) plain(i int) bool {
	c := &b.Charges[i]
	return !c.Refund && c.Mode != Quota && !c.Policy.CountRefused && c.Policy.MaxWait == 0 && b.hits(i) > 0
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
