package limiter

import "time"

// A swap is what one charge does to the word of its slot. Equal words need no
// write.
type swap struct {
	slot     *slot
	old, new uint64
}

// take makes the swap. It reports false, and has done nothing, if the counter was
// hit meanwhile.
func (s *swap) take() bool {
	if s.new == s.old {
		return true
	}
	pause(beforeWordSwap)
	return s.slot.word.CompareAndSwap(s.old, s.new)
}

// lookFast decides what happens most, as charge does: a counter that has its slot
// and, if it is a ring, was hit in this sub-window, is taken from, looked at, or
// refuses without counting. The decision holds once its swap is taken. It reports
// false for all else. It exists because it takes two thirds of charge's time.
func lookFast(at instant, space *Space, tag uint64, c *Charge, hits uint64, b *Batch, d *Decision) (swap, bool) {
	p := c.Policy
	if c.Refund || p.Algorithm == SlidingLog {
		return swap{}, false
	}
	if p.Algorithm == SlidingWindow {
		return ringFast(at, space, tag, c, hits, d)
	}
	slot, _ := space.shelves[0].Load().find(tag, c.ID)
	if slot == nil {
		return swap{}, false
	}
	pause(beforeWordLoad)
	word := slot.word.Load()
	pause(afterWordLoad)
	if slot.tag.Load() != tag || word == dead {
		return swap{}, false
	}
	if isBucket(p.Algorithm) {
		return bucketFast(at, slot, word, p, hits, b, d)
	}
	left, live := windowLeft(word, at.sec)
	limit, used := uint64(p.Limit), word&windowCount
	if !live {
		return swap{}, false
	}
	reset := at.until(at.sec + left)
	if hits > limit || used > limit-hits {
		*d = Decision{Over: true, Before: used, Reset: reset, RetryAfter: reset}
		if hits > limit {
			d.RetryAfter = Never
		}
		return swap{}, !p.CountRefused
	}
	*d = Decision{Before: used, Charged: hits, Remaining: limit - used - hits, Reset: reset}
	return swap{slot, word, word + hits}, true
}

// bucketFast is lookFast for buckets.
func bucketFast(at instant, slot *slot, word uint64, p *Policy, hits uint64, b *Batch, d *Decision) (swap, bool) {
	if p.MaxWait > 0 {
		return bucketHeld(at, slot, word, p, hits, b, d)
	}
	k := &p.ready.bucket
	if !p.isPrepared() {
		own := p.bucket(0)
		k = &own
	}
	lag, shift := lagOf(word, at)
	if shift != k.shift || k.step == 0 {
		return swap{}, false
	}
	before := k.hits(lag) // the one division: a full bucket is a whole number of hits
	if hits > k.most || before > k.most-hits {
		*d = Decision{Over: true, Before: before, RetryAfter: Never}
		if hits <= k.most {
			d.RetryAfter = k.nanos(lag + hits*k.step - k.full)
		}
		d.overReset(p)
		return swap{}, !p.CountRefused
	}
	after := word
	if hits > 0 {
		lag += hits * k.step
		if after = bucketWord(at, lag, shift) | word&lifeBit; after == dead {
			return swap{}, false
		}
	}
	*d = Decision{Before: before, Charged: hits, Remaining: k.most - before - hits, Reset: max(1, k.nanos(lag))}
	return swap{slot, word, after}, true
}

// bucketHeld is lookFast for buckets whose hits may wait.
func bucketHeld(at instant, slot *slot, word uint64, p *Policy, hits uint64, b *Batch, d *Decision) (swap, bool) {
	k := p.bucket(b.Budget)
	lag, shift := lagOf(word, at)
	if shift != k.shift || k.step == 0 {
		return swap{}, false
	}
	*d = Decision{}
	k.answer(lag, hits, d)
	after := word
	switch {
	case d.Wait > 0 || d.Over && p.CountRefused:
		return swap{}, false
	case d.Over:
		d.overReset(p)
		return swap{}, true
	case hits > 0:
		lag += k.need(hits)
		if after = bucketWord(at, lag, shift) | word&lifeBit; after == dead {
			return swap{}, false
		}
	}
	d.Charged = hits
	d.Remaining, d.Reset = k.left(lag)
	return swap{slot, word, after}, true
}

// ringFast is lookFast for rings whose head is the current sub-window.
func ringFast(at instant, space *Space, tag uint64, c *Charge, hits uint64, d *Decision) (swap, bool) {
	p := c.Policy
	if !p.isPrepared() {
		return swap{}, false
	}
	sh := space.shelves[p.ready.class].Load()
	if sh == nil {
		return swap{}, false
	}
	slot, index := sh.find(tag, c.ID)
	if slot == nil {
		return swap{}, false
	}
	pause(beforeWordLoad)
	word := slot.word.Load()
	pause(afterWordLoad)
	if slot.tag.Load() != tag || word&lockBit != 0 {
		return swap{}, false
	}
	note := sh.note(index)
	end, past := note.end.Load(), note.past.Load()
	limit, now := uint64(p.Limit), at.stamp()
	used := word & payloadMask
	// The head's hits count for the k sub-windows after it too.
	r, into := p.ready.ring, end-now
	if into <= int64(r.k)*r.length || into > int64(r.k+1)*r.length || used+hits == 0 {
		return swap{}, false
	}
	if (slot.word.Load()^word)&^payloadMask != 0 {
		return swap{}, false // the note may be another one's
	}
	if hits > limit || used+past > limit-hits {
		head := end/r.length - int64(r.k) - 1
		v := view{shelf: sh, slot: slot, index: index, word: word, head: head, state: state{used: used, past: past, num: head}}
		if st := v.state; p.CountRefused || !v.decide(at, c, hits, 0, &st, d) {
			return swap{}, false
		}
		d.Remaining = 0
		d.overReset(p)
		return swap{}, true
	}
	*d = Decision{Before: used + past, Charged: hits, Remaining: limit - used - past - hits, Reset: time.Duration(into)}
	return swap{slot, word, word + hits}, true
}
