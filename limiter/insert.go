package limiter

import (
	"math/bits"
	"runtime"
)

// insert gives the counter of view v, which is absent or misplaced, a slot in its size class and
// stores the state after in it. It returns false without effect if the view is stale.
//
// A slot changes its owner by three writes: the word becomes dead, then the tag and then the word
// become those of the new owner. Charges read tag, word and tag again and then compare-and-swap the
// word. A charge that stalled before its compare-and-swap therefore fails, unless the new owner's
// word equals the one it read. Words of expired counters cannot recur: the new window ends after
// the horizon, the old one did not. Words of evicted counters could recur, since windows with one
// hit look alike. This is why each change of owner flips the generation bit. A charge can still
// reach the wrong counter if the slot changes its owner twice between two of its instructions and
// the second window ends in the same second with the same count. The wrong counter, in an
// overloaded table, is then charged too much, never too little. If the right counter has moved
// instead of being evicted, it lacks the hit; this affects about one hit in 10^13 while slots
// change owners all the time.
//
// A counter that moves to another block or size class is frozen first: its word becomes dead, so it
// cannot be charged until it is in its new slot. A charge that succeeds just before its counter is
// evicted is lost with it.
//
// A resizing counter that v found in another size class moves to its own.
func (t *Table) insert(at Time, b *Batch, c *Charge, v *view, after state) bool {
	p := c.Policy
	id := c.ID
	partition := t.partition(b, c.Policy)
	a := p.algorithm()
	tag := c.tag()
	if a.resizes() {
		m := &t.moving[id.Lo%stripes]
		m.Lock()
		defer m.Unlock()
		if v.slot == nil {
			if v.findElsewhere(partition, tag, id); v.slot != nil {
				return false
			}
		}
	}
	sc := partition.class(p)
	if v.slot == nil && sc.size > 0 {
		sc.prefetchSlot(id)
	}
	for tries := 0; ; tries++ {
		evict := tries == maxRoomTries || tries > 0 && !t.makeRoom(at, partition, sc, id, tries)
		try := t.insertAbsent
		if v.slot != nil {
			try = t.moveLocked
		}
		switch outcome := try(at, sc, c, v, after, evict); outcome {
		case full:
		case insertedSecond:
			t.growAhead(at, partition, sc)
			return true
		default:
			return outcome == inserted
		}
	}
}

// maxRoomTries bounds how often an insert makes room that other inserts take first.
const maxRoomTries = 16

// A result is the outcome of one attempt to insert a counter.
type result uint8

const (
	inserted       result = iota
	insertedSecond        // inserted into the second block
	stale                 // the view has changed; no effect
	full                  // would have to evict a live counter; no effect
)

// insertAbsent is insert for a counter without a slot.
func (t *Table) insertAbsent(at Time, sc *sizeClass, c *Charge, v *view, after state, evict bool) result {
	p := c.Policy
	id := c.ID
	tag := c.tag()
	first, second, held := sc.lockPair(id)
	defer held.unlock()
	if s, _ := sc.search(tag, first, second); s != nil ||
		p.algorithm().fresh(at, t.notBeforeHorizon(at), p) != v.state {
		return stale
	}
	return t.placeLocked(at, sc, tag, p, v, after, target{first, second, way(id)}, evict)
}

// moveLocked is insert for a counter that moves from v's size class to sc. The caller holds its
// moveLock.
func (t *Table) moveLocked(at Time, sc *sizeClass, c *Charge, v *view, after state, evict bool) result {
	id := c.ID
	tag := c.tag()
	lower := v.class
	upper := sc
	if lower.size > upper.size {
		lower, upper = upper, lower
	}
	_, _, heldLower := lower.lockPair(id)
	defer heldLower.unlock()
	_, _, heldUpper := upper.lockPair(id)
	defer heldUpper.unlock()
	first, second := sc.blockPair(id)
	if s, _ := sc.search(tag, first, second); s != nil {
		return stale
	}
	to := target{first, second, way(id)}
	if _, _, live, ok := sc.chooseSlot(tag, to, at); !evict && (live || !ok) {
		return full
	}
	pause(beforeSlotDead)
	if v.slot.tag.Load()&^secondBit != tag || !v.slot.word.CompareAndSwap(v.word, dead) {
		return stale
	}
	outcome := t.placeLocked(at, sc, tag, c.Policy, v, after, to, true)
	block := first
	if outcome == insertedSecond {
		block = second
	}
	v.class.noteMoveLocked(v.index, v.word, sc, block, id)
	t.moving[id.Lo%stripes].moves.Add(1)
	v.class.clearSlot(v.index, v.word)
	return outcome
}

// A target is the location for a new counter: two blocks, and the preferred way in them.
type target struct{ first, second, way uint64 }

// placeLocked puts a counter into a slot of the two blocks, whose locks are held. If that would
// evict a live counter and evict is false, it returns full without effect.
func (t *Table) placeLocked(
	at Time, sc *sizeClass, tag uint64, p *Policy, v *view, after state, to target, evict bool,
) result {
	for {
		index, word, live, ok := sc.chooseSlot(tag, to, at)
		if !ok { // all slots are being written
			runtime.Gosched()
			continue
		}
		if live && !evict {
			return full
		}
		if !t.takeSlotLocked(sc, index, word, at) {
			continue // the slot was hit meanwhile; choose another
		}
		outcome := inserted
		if index/ways == to.second {
			tag |= secondBit
			outcome = insertedSecond
		}
		sc.fillSlot(index, word, tag, p.algorithm().store(v, sc, index, p, after))
		return outcome
	}
}

// takeSlotLocked takes a slot with the given word from its owner, if any. It returns false if the
// word has changed. The lock of the slot's block is held.
func (t *Table) takeSlotLocked(sc *sizeClass, index, word uint64, at Time) bool {
	s := sc.slotAt(index)
	old := s.tag.Load()
	if old == 0 {
		return true
	}
	lost := t.recordLoss(sc, old, index, word, at)
	pause(beforeSlotDead)
	if !s.word.CompareAndSwap(word, dead) {
		return false
	}
	pause(afterSlotDead)
	sc.countRemoval(lost)
	return true
}

// recordLoss reports whether a live counter is lost with the slot of the given tag and word. If the
// counter has expired, it raises the horizon to its end.
func (t *Table) recordLoss(sc *sizeClass, tag, index, word uint64, at Time) bool {
	owner := algorithmOf(tag)
	end, live := owner.expiry(sc, index, word, at)
	if !live {
		t.raiseHorizon(min(end, at), at)
	}
	return live && owner.weight(sc, index, word) > 0
}

// countRemoval counts a counter that has lost its slot.
func (sc *sizeClass) countRemoval(lost bool) {
	if lost {
		sc.evicted.Add(1)
	} else {
		sc.reclaimed.Add(1)
	}
}

// fillSlot gives a slot, taken by takeSlotLocked when it had the given word, to a counter whose
// note and cells are already written. The tag is stored last, so a reader that finds the tag also
// finds the word.
func (sc *sizeClass) fillSlot(index, word, tag, payload uint64) {
	s := sc.slotAt(index)
	if s.tag.Load() != 0 {
		s.tag.Store(tag)
	}
	s.word.Store(sc.nextWord(word, payload))
	s.tag.Store(tag)
}

// clearSlot marks a dead slot, which had the given word, as never used. It keeps the generation,
// because the next owner flips it: flipped twice, the new word could equal the one that a stalled
// charge has read of the counter that moved away.
func (sc *sizeClass) clearSlot(index, word uint64) {
	s := sc.slotAt(index)
	left := withGeneration(0, word)
	if sc.size > 0 {
		left = nextVersion(word, 0)
	}
	s.tag.Store(0)
	s.word.Store(left)
}

// nextWord returns the word of a slot that changes its owner.
func (sc *sizeClass) nextWord(word, payload uint64) uint64 {
	if sc.size > 0 {
		return nextVersion(word, payload)
	}
	return withGeneration(payload, ^word)
}

// A victim is a live counter that may be evicted.
type victim struct {
	valid  bool
	index  uint64
	word   uint64
	weight uint64
	end    Time
}

// before reports whether v is evicted before w, which is of the same kind.
func (v *victim) before(w *victim) bool {
	if v.weight != w.weight {
		return v.weight < w.weight
	}
	return v.end < w.end
}

// chooseVictim returns the candidate to evict: candidates[0], a window, or candidates[1], a bucket,
// given the number of live counters of each kind. Hits of windows and levels of buckets cannot be
// compared. The more frequent kind loses one, since a full table is mostly due to a flood;
// otherwise the flood would evict all established counters of the other kind, each being the only
// one of its kind in its blocks. On a tie the kind of the newcomer loses one.
func chooseVictim(candidates *[2]victim, live [2]int, newcomer int) *victim {
	if other := 1 - newcomer; live[other] > live[newcomer] {
		return &candidates[other]
	}
	return &candidates[newcomer]
}

// victimKind returns 1 for the tag of a counter without a weight, else 0.
func victimKind(tag uint64) int {
	if algorithmOf(tag).hasWeight() {
		return 0
	}
	return 1
}

// chooseSlot returns the number and the word of the slot of the two blocks that a new counter
// should take: a free one, preferably never used, since a late caller may still need an expired
// counter; otherwise the victim, and whether evicting it loses hits. ok is false if all slots are
// being written.
func (sc *sizeClass) chooseSlot(newcomer uint64, to target, at Time) (index, word uint64, live, ok bool) {
	if index, ok = sc.unusedSlot(to); ok {
		return index, sc.slotAt(index).word.Load(), false, true
	}
	var (
		free       [2]uint64
		freeWord   [2]uint64
		unused     [2]bool
		count      [2]int
		candidates [2]victim // windows, buckets
		alive      [2]int
	)
	for n, i := range [2]uint64{to.first, to.second} {
		b := &sc.blocks[i]
		for j := range uint64(ways) {
			j = (j ^ to.way) % ways // the cache line of the way first
			tag := b[j].tag.Load()
			word := b[j].word.Load()
			index := i*ways + j
			if sc.isBusy(word) {
				continue
			}
			end := Time(0)
			live := false
			if tag != 0 {
				end, live = algorithmOf(tag).expiry(sc, index, word, at)
			}
			if !live {
				count[n]++
				if count[n] == 1 || tag == 0 && !unused[n] {
					free[n] = index
					freeWord[n] = word
					unused[n] = tag == 0
				}
				continue
			}
			kind := victimKind(tag)
			alive[kind]++
			v := victim{
				index: index, word: word, end: end, valid: true, weight: algorithmOf(tag).weight(sc, index, word),
			}
			if !candidates[kind].valid || v.before(&candidates[kind]) {
				candidates[kind] = v
			}
		}
		if n == 0 && count[0] >= sc.minFree {
			return free[0], freeWord[0], false, true
		}
	}
	switch {
	case count[0] == 0 && count[1] == 0:
		v := chooseVictim(&candidates, alive, victimKind(newcomer))
		return v.index, v.word, v.weight > 0, v.valid
	case count[0] >= count[1]:
		return free[0], freeWord[0], false, true
	default:
		return free[1], freeWord[1], false, true
	}
}

// isBusy reports whether a slot with the word is changing its owner or its cells are being written.
func (sc *sizeClass) isBusy(word uint64) bool {
	return word == dead || sc.size > 0 && word&lockBit != 0
}

// unusedSlot returns a never used slot if chooseSlot would choose one: in the first block if that
// has minFree of them, or, for counters with cells, in the block that has more, because reading
// their expiry would fetch another cache line. It counts without branches, which the processor
// could not predict.
func (sc *sizeClass) unusedSlot(to target) (index uint64, ok bool) {
	i := to.first
	m := sc.blocks[to.first].unusedMask()
	if bits.OnesCount8(m) >= sc.minFree {
		return i*ways + nearestSlot(m, to.way), true
	}
	if sc.size == 0 {
		return 0, false
	}
	if n := sc.blocks[to.second].unusedMask(); bits.OnesCount8(n) > bits.OnesCount8(m) {
		i = to.second
		m = n
	}
	return i*ways + nearestSlot(m, to.way), m != 0
}

// unusedMask returns a bit for each slot that was never used.
func (b *block) unusedMask() uint8 {
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

// nearestSlot returns the first set bit of m at or after from, cyclically, preferring the same
// cache line.
func nearestSlot(m uint8, from uint64) uint64 {
	if line := m & ((1<<lineWays - 1) << (from &^ (lineWays - 1))); line != 0 {
		m = line
	}
	m = m>>from | m<<(ways-from)
	return (from + uint64(bits.TrailingZeros8(m))) % ways //nolint:gosec // not negative
}

// notBeforeHorizon returns at, or the horizon if that is later: a late caller must not find an
// empty counter in a window whose counter was reclaimed. It ignores a horizon from before the clock
// was set back, because a counter that began there would start again at its next hit.
func (t *Table) notBeforeHorizon(at Time) Time {
	h := Time(t.horizon.Load())
	if h > at && !begunAhead(int64(h), int64(at)) {
		return h
	}
	return at
}

// raiseHorizon raises the horizon to end, at the time at. It replaces a horizon from before the
// clock was set back.
func (t *Table) raiseHorizon(end, at Time) {
	for {
		h := t.horizon.Load()
		if Time(h) >= end && !begunAhead(h, int64(at)) || t.horizon.CompareAndSwap(h, int64(end)) {
			return
		}
	}
}
