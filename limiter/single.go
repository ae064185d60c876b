package limiter

import (
	"sync/atomic"
	"time"
)

// Single is one counter under one policy, for programs that have a limiter in hand
// and need no [Table] to find it in. The same code decides. All methods may be
// called concurrently; a Single must not be copied. It takes some 300 bytes, and
// 8 for each hit of a log or two sub-windows.
type Single struct {
	slot   slot // without a tag, since nobody looks for it
	policy Policy
	note   [1]note
	cells  shelf // of this counter alone: its note, and its cells if it has some
	// coarse is the bucket's most if its unit is 1 ns, else 0.
	coarse uint64
}

// NewSingle returns a counter without hits. It returns an error if the policy is not
// valid; see [Policy.Validate].
func NewSingle(p Policy) (*Single, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s := &Single{policy: p}
	s.policy.Prepare()
	s.cells.size = classes[s.policy.class()]
	if k := &s.policy.ready.bucket; isBucket(p.Algorithm) && k.shift == 0 {
		s.coarse = k.most
	}
	if s.cells.size == 0 {
		s.slot.word.Store(dead) // until it is hit
		return s, nil
	}
	s.note[0].end.Store(-maxStamp)
	s.cells.notes = s.note[:]
	s.cells.cells = make([]atomic.Uint64, s.cells.size)
	return s, nil
}

// Decide decides hits at the time now, 0 to look only, and reports whether they
// pass. It fills in d, which must not be nil, as [Table.Decide] does for a charge
// that is alone in its batch; a pointer, since to copy a Decision takes longer than
// to make it.
//
// Hits that pass later, which only a leaky bucket with MaxWait lets them, are to be
// held for d.Wait. Nothing bounds that but MaxWait, and a place among those that
// wait cannot be given back: calls with deadlines of their own and calls that may
// be cancelled need a table; see [Batch.Budget] and [Table.Cancel].
func (s *Single) Decide(now Time, hits uint64, d *Decision) bool {
	p := &s.policy
	pause(beforeWordLoad)
	word := s.slot.word.Load()
	pause(afterWordLoad)
	// What happens most, in one straight line for each algorithm. What is left is
	// computed after the swap, which waits for all that comes before it.
	k, at := &p.ready.bucket, uint64(now) //nolint:gosec // one before the epoch is beyond until
	switch {
	case hits-1 < s.coarse: // k.admits, in two comparisons less
		if at < k.until {
			// What is loaded after the swap waits for it, so this is before.
			full, most, part, down := k.full, k.most, k.part, k.down
			lag, after := k.admit(at, lifeBit, word, hits)
			if lag <= full && s.swap(word, after) {
				room := divide(full-lag, part, down)
				d.admitted(most-hits-room, hits, room, time.Duration(lag)) //nolint:gosec // below 2^62
				return true
			}
		}
	case isBucket(p.Algorithm): // of a coarse one k admits no such hits
		at = at << fineShift & tatMask
		if k.admits(at, hits) {
			lag, after := k.admit(at, lifeBit|fineBit, word, hits)
			if lag <= k.full && s.swap(word, after) {
				room := k.over(k.full - lag)
				d.admitted(k.most-hits-room, hits, room, k.nanos(lag))
				return true
			}
		}
	case p.Algorithm == FixedWindow:
		at := instantOf(now)
		left, room, ok := windowAdmit(at, word, uint64(p.Limit), hits)
		if ok && s.swap(word, word+hits) {
			d.admitted(word&windowCount, hits, room, at.until(at.sec+left))
			return true
		}
	case p.Algorithm == SlidingWindow:
		end, past := s.note[0].end.Load(), s.note[0].past.Load()
		into, room, ok := p.ready.ring.admit(now, word, end, past, uint64(p.Limit), hits)
		if ok && s.swap(word, word+hits) {
			d.admitted(word&payloadMask+past, hits, room, into)
			return true
		}
	}
	return s.decideAny(now, hits, d)
}

// decideAny is Decide for all cases. Its charge would make the frame of Decide larger.
//
//go:noinline
func (s *Single) decideAny(now Time, hits uint64, d *Decision) bool {
	s.decide(now, &Charge{Policy: &s.policy, Hits: hits}, d)
	return !d.Over
}

// swap replaces the word. It reports false if the counter was hit meanwhile.
func (s *Single) swap(before, after uint64) bool {
	pause(beforeWordSwap)
	return s.slot.word.CompareAndSwap(before, after)
}

// Refund gives hits back at the time now, as a charge with [Charge.Refund] does, and
// fills in d.
func (s *Single) Refund(now Time, hits uint64, d *Decision) {
	s.decide(now, &Charge{Policy: &s.policy, Hits: hits, Refund: true}, d)
}

// decide is Decide and Refund for all cases.
func (s *Single) decide(now Time, c *Charge, d *Decision) {
	at, p := instantOf(now), &s.policy
	v := view{shelf: &s.cells, slot: &s.slot}
	for {
		v.word = s.slot.word.Load()
		if after, ok := s.decideFast(at, &v, c, d); ok {
			if after == v.word || s.swap(v.word, after) {
				break
			}
			continue
		}
		if !s.load(at, &v) {
			continue
		}
		after := v.state
		if !v.decide(at, c, c.Hits, maxHold, &after, d) {
			continue
		}
		v.finish(at, p, maxHold, &after, d)
		if after == v.state && v.same() || after != v.state && v.replace(at, p, &after) {
			break
		}
	}
	d.Refused = d.Over
}

// decideFast decides what lookFast does. It reports false for all else.
func (s *Single) decideFast(at instant, v *view, c *Charge, d *Decision) (after uint64, ok bool) {
	switch p := &s.policy; {
	case c.Refund || p.Algorithm == SlidingLog || v.word == dead:
		return 0, false
	case p.Algorithm == SlidingWindow:
		return v.ringFast(at, p, c.Hits, d)
	default:
		return wordFast(at, v.word, p, c.Hits, maxHold, d)
	}
}

// load makes v's state that of its word. It reports false if that has changed.
func (s *Single) load(at instant, v *view) bool {
	switch {
	case v.shelf.size > 0 && v.word&lockBit != 0:
		await()
		return false
	case v.shelf.size == 0 && v.word == dead:
		v.state = fresh(at, at, &s.policy)
		return true
	default:
		return v.load(at, &s.policy)
	}
}
