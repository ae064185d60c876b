package limiter

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// A moveLock is held while a counter is inserted that may be in another size class.
type moveLock struct {
	sync.Mutex
	// moves counts the counters that have moved to another size class. It grows when one is in
	// the new and not yet gone from the old, so a reader that has found it in neither
	// reads again.
	moves atomic.Uint64
}

// insert gives the counter that v found absent a slot and stores the state after
// in it. It returns false, and has done nothing, if the counter has a slot by now
// or its state, absent, must be another one.
//
// A slot changes hands by three writes: its word becomes dead, its tag that of
// the new owner, its word that of the new owner. Charges that find a slot read
// tag, word and tag again, and then compare-and-swap the word. So one that was
// stalled before its compare-and-swap fails, for the word is another one, unless
// the new owner's word happens to equal the one that was seen. Words of expired
// counters cannot come back: the new one ends after the horizon, the old one
// did not. Those of counters that were evicted could, a window with one hit
// being like another. Hence the generation in the word, which every change of hands
// flips. A charge can still reach a stranger if the slot changes hands twice
// while one goroutine stands between two instructions and the second window ends
// in the same second with the same count. The stranger, in a table that is
// overrun, is then charged too much, never too little.
//
// A charge that succeeds just before its counter is evicted is forgotten with it.
//
// A log that v found in another size class moves to its own.
func (t *Table) insert(at Time, b *Batch, c *Charge, v *view, after state) bool {
	p, id, partition := c.Policy, c.ID, t.partition(b)
	a, tag := p.algorithm(), c.tag()
	if a.resizes() { // it could be in several size classes
		m := &t.logs[id.Lo%stripes]
		m.Lock()
		defer m.Unlock()
		if v.slot == nil {
			if v.elsewhere(partition, tag, id); v.slot != nil {
				return false
			}
		}
	}
	sc := partition.class(p)
	if v.slot != nil {
		return t.move(at, sc, c, v, after)
	}
	if sc.size > 0 {
		sc.touch(id)
	}
	first, second := sc.pair(id)
	held := sc.lock(first, second)
	defer held.unlock()
	if s, _ := sc.find(tag, id); s != nil || a.fresh(at, t.notLate(at), p) != v.state {
		return false
	}
	t.place(at, sc, tag, p, v, after, first, second, way(id))
	return true
}

// move is insert for a log that goes from v's size class to sc. Its lock is held.
func (t *Table) move(at Time, sc *sizeClass, c *Charge, v *view, after state) bool {
	id, tag := c.ID, c.tag()
	small, large := v.class, sc
	if small.size > large.size {
		small, large = large, small
	}
	lower := small.lock(small.pair(id))
	defer lower.unlock()
	upper := large.lock(large.pair(id))
	defer upper.unlock()
	if s, _ := sc.find(tag, id); s != nil {
		return false
	}
	pause(beforeSlotDead)
	if v.slot.tag.Load() != tag || !v.slot.word.CompareAndSwap(v.word, dead) {
		return false
	}
	first, second := sc.pair(id)
	t.place(at, sc, tag, c.Policy, v, after, first, second, way(id))
	t.logs[id.Lo%stripes].moves.Add(1)
	v.slot.tag.Store(0)
	v.slot.word.Store(nextVersion(v.word, 0))
	return true
}

// place puts a counter into a slot of the two blocks of the size class, whose locks are
// held.
func (t *Table) place(at Time, sc *sizeClass, tag uint64, p *Policy, v *view, after state, first, second, way uint64) {
	for {
		index, word, ok := sc.choose(tag, first, second, way, at)
		if !ok { // all are being written
			runtime.Gosched()
			continue
		}
		s := sc.at(index)
		if old := s.tag.Load(); old != 0 {
			owner := algorithmOf(old)
			end, live := owner.expiry(sc, index, word, at)
			if !live {
				t.raiseHorizon(min(end, at))
			}
			lost := live && owner.weight(sc, index, word) > 0
			pause(beforeSlotDead)
			if !s.word.CompareAndSwap(word, dead) {
				continue // it was hit meanwhile; choose another
			}
			pause(afterSlotDead)
			if lost {
				t.evicted.Add(1)
			} else {
				t.reclaimed.Add(1)
			}
			s.tag.Store(tag)
		}
		if w := p.algorithm().store(v, sc, index, p, after); sc.size > 0 {
			s.word.Store(nextVersion(word, w))
		} else {
			s.word.Store(withGeneration(w, ^word))
		}
		s.tag.Store(tag)
		return
	}
}

// A victim is a live counter that may be evicted.
type victim struct {
	some   bool
	index  uint64
	word   uint64
	weight uint64
	end    Time
}

// before reports whether v is worth less than w, which is of the same kind.
func (v *victim) before(w *victim) bool {
	if v.weight != w.weight {
		return v.weight < w.weight
	}
	return v.end < w.end
}

// leastOf returns which of two victims is evicted: one of windows, one of
// buckets, of which there are so many. Hits of windows and levels of buckets do not
// compare. The kind that has most slots loses one, since a flood is what fills
// a table. Otherwise established counters of the other kind would all be lost to it,
// each being the only one of its kind among its neighbours. If both have as many, the
// newcomer's kind loses one.
func leastOf(least *[2]victim, live [2]int, newcomer int) *victim {
	if other := 1 - newcomer; live[other] > live[newcomer] {
		return &least[other]
	}
	return &least[newcomer]
}

// kindOf returns 1 for the tag of a counter that does not weigh its hits, else 0.
func kindOf(tag uint64) int {
	if algorithmOf(tag).weighs() {
		return 0
	}
	return 1
}

// choose returns the number of the slot of the two blocks that a new counter
// should take, and its word: a free one, best one never used, since a late
// caller may still ask for an expired counter; else the live one that is worth
// least. It reports false if the cells of all are being written.
func (sc *sizeClass) choose(newcomer, first, second, way uint64, at Time) (index, word uint64, ok bool) {
	if index, ok = sc.unused(first, second, way); ok {
		return index, sc.at(index).word.Load(), true
	}
	var (
		free     [2]uint64
		freeWord [2]uint64
		unused   [2]bool
		count    [2]int
		least    [2]victim // of windows and of buckets
		live     [2]int
	)
	for n, i := range [2]uint64{first, second} {
		b := &sc.blocks[i]
		for j := range uint64(ways) {
			j = (j ^ way) % ways // the way's line first
			tag, word, index := b[j].tag.Load(), b[j].word.Load(), i*ways+j
			if tag == closed || word == dead || sc.size > 0 && word&lockBit != 0 {
				continue
			}
			end, alive := Time(0), false
			if tag != 0 {
				end, alive = algorithmOf(tag).expiry(sc, index, word, at)
			}
			if !alive {
				count[n]++
				if count[n] == 1 || tag == 0 && !unused[n] {
					free[n], freeWord[n], unused[n] = index, word, tag == 0
				}
				continue
			}
			kind := kindOf(tag)
			live[kind]++
			v := victim{index: index, word: word, end: end, some: true, weight: algorithmOf(tag).weight(sc, index, word)}
			if !least[kind].some || v.before(&least[kind]) {
				least[kind] = v
			}
		}
		if n == 0 && count[0] >= sc.roomy {
			return free[0], freeWord[0], true
		}
	}
	switch {
	case count[0] == 0 && count[1] == 0:
		v := leastOf(&least, live, kindOf(newcomer))
		return v.index, v.word, v.some
	case count[0] >= count[1]:
		return free[0], freeWord[0], true
	default:
		return free[1], freeWord[1], true
	}
}

// unused returns a slot that was never used, if that is what choose would find: of
// the first block if it is roomy, or of the block that has more of them, for counters with cells:
// whether those live, their notes tell, which are a line of memory more. It counts
// without branches, since which slots are taken is anybody's guess.
func (sc *sizeClass) unused(first, second, way uint64) (index uint64, ok bool) {
	m := sc.blocks[first].unused()
	if bits.OnesCount8(m) >= sc.roomy {
		return first*ways + nearest(m, way), true
	}
	if sc.size == 0 {
		return 0, false
	}
	if n := sc.blocks[second].unused(); bits.OnesCount8(n) > bits.OnesCount8(m) {
		m, first = n, second
	}
	return first*ways + nearest(m, way), m != 0
}

// unused returns a bit for each slot that was never used.
func (b *block) unused() uint8 {
	m := uint8(0)
	for i := range b {
		free := uint8(0)
		if b[i].tag.Load() == 0 {
			free = 1
		}
		m |= free << i
	}
	return m
}

// nearest returns the first set bit of m from the given one on, and round; one of the
// same line of memory if there is any.
func nearest(m uint8, from uint64) uint64 {
	if line := m & ((1<<lineWays - 1) << (from &^ (lineWays - 1))); line != 0 {
		m = line
	}
	m = m>>from | m<<(ways-from)
	return (from + uint64(bits.TrailingZeros8(m))) % ways //nolint:gosec // not negative
}

// notLate returns at, or the horizon if that is later: a late caller must
// not find an empty counter in a window whose counter has been reclaimed. Over a
// year late is not late: the clock was set back.
func (t *Table) notLate(at Time) Time {
	h := Time(t.horizon.Load())
	if late := uint64(h) - uint64(at); h > at && late <= uint64(maxLateNanos) { //nolint:gosec // h is later
		return h
	}
	return at
}

// raiseHorizon makes the horizon at least end.
func (t *Table) raiseHorizon(end Time) {
	for {
		h := t.horizon.Load()
		if Time(h) >= end || t.horizon.CompareAndSwap(h, int64(end)) {
			return
		}
	}
}
