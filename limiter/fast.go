package limiter

// chargeFast is charge for what happens most: a counter of one word that has its
// slot is taken from, looked at, or refuses without counting. It reports false,
// and has done nothing, for all else; charge does that. It exists because it takes
// two thirds of charge's time.
func (t *Table) chargeFast(at instant, space *Space, tag uint64, c *Charge, hits uint64, b *Batch, d *Decision) bool {
	slot, _ := space.shelves[0].Load().find(tag, c.ID)
	if slot == nil || c.Refund {
		return false
	}
	pause(beforeWordLoad)
	word := slot.word.Load()
	pause(afterWordLoad)
	if slot.tag.Load() != tag || word == dead {
		return false
	}
	p := c.Policy
	if isBucket(p.Algorithm) {
		return bucketFast(at, slot, word, p, hits, b, d)
	}
	left, live := windowLeft(word, at.sec)
	limit, used := uint64(p.Limit), word&windowCount
	if !live {
		return false
	}
	reset := at.until(at.sec + left)
	if hits > limit || used > limit-hits {
		if p.CountRefused {
			return false
		}
		*d = Decision{Over: true, Before: used, Reset: reset, RetryAfter: reset}
		if hits > limit {
			d.RetryAfter = Never
		}
		return true
	}
	pause(beforeWordSwap)
	if hits > 0 && !slot.word.CompareAndSwap(word, word+hits) {
		return false
	}
	*d = Decision{Before: used, Charged: hits, Remaining: limit - used - hits, Reset: reset}
	return true
}

// bucketFast is chargeFast for buckets.
func bucketFast(at instant, slot *slot, word uint64, p *Policy, hits uint64, b *Batch, d *Decision) bool {
	k := &p.ready.bucket
	if !p.isPrepared() || k.hold > 0 {
		own := p.bucket(b.Budget)
		k = &own
	}
	lag, shift := lagOf(word, at)
	if shift != k.shift || k.step == 0 {
		return false
	}
	*d = Decision{}
	k.answer(lag, hits, d)
	switch {
	case d.Wait > 0 || d.Over && p.CountRefused:
		return false
	case d.Over:
		d.overReset(p)
		return true
	case hits > 0:
		lag += k.need(hits)
		after := bucketWord(at, lag, shift) | word&lifeBit
		pause(beforeWordSwap)
		if after == dead || !slot.word.CompareAndSwap(word, after) {
			return false
		}
	}
	d.Charged = hits
	d.Remaining, d.Reset = k.left(lag)
	return true
}
