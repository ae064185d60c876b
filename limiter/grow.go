package limiter

import (
	"math/bits"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A size class grows by splitting its blocks in turn, each into itself and a new last block, and
// shrinks by merging the last block into the one that it was split from. Both move a few counters
// under the locks of two blocks.

// buddy returns the number of the block from which block n was split.
func buddy(n uint64) uint64 { return n - 1<<(bits.Len64(n)-1) }

// splitLocked adds a block. It returns false without effect if a counter that must move is being
// written. The caller holds s.resizeMu and has taken the memory of the block.
func (s *sizeClass) splitLocked() bool {
	last := s.inUse()
	from := buddy(last)
	held := s.lockBlocks(from, last)
	defer held.unlock()
	words, ok := s.freezeBlock(from, func(tag uint64) bool {
		return address(s.hash(from, tag), last+1) == last
	})
	if !ok {
		return false
	}
	for j, word := range words {
		if index, to := from*ways+uint64(j), last*ways+uint64(j); word != dead {
			s.copyTo(index, to, word, s.slotAt(to).word.Load(), s.slotAt(index).tag.Load())
		}
	}
	pause(whileCountersMove)
	// Searches that failed under the old layout are repeated.
	s.layout.Add(layoutMove + 1)
	s.emptyFrozen(from, words)
	s.adviseFilled(last)
	return true
}

// mergeLocked removes the last block and moves its live counters to the block that it was split
// from or to their other blocks. If they do not fit, it evicts the least used if evict is true;
// otherwise it returns false without effect. It also returns false if a counter that must move is
// being written. The caller holds s.resizeMu.
func (s *sizeClass) mergeLocked(t *Table, at Time, evict bool) bool {
	if s.inUse() <= s.minBlocks {
		return false
	}
	last := s.inUse() - 1
	into := buddy(last)
	for j := uint64(0); j < ways && s.countLiveIn(last, at)+s.countLiveIn(into, at) > ways; j++ {
		if !s.moveToOther(t, at, last*ways+j, 0) {
			s.moveToOther(t, at, into*ways+j, 0)
		}
	}
	held := s.lockBlocks(into, last)
	defer held.unlock()
	if !evict && s.countLiveIn(last, at) > ways-s.countLiveIn(into, at) {
		return false
	}
	words, ok := s.freezeBlock(last, func(uint64) bool { return true })
	if !ok {
		return false
	}
	for j, word := range words {
		if word != dead {
			s.mergeSlot(t, last*ways+uint64(j), word, into, at)
		}
	}
	pause(whileCountersMove)
	s.layout.Add(layoutMove - 1)
	s.emptyFrozen(last, words)
	s.returnMemory(last)
	return true
}

// mergeSlot moves a frozen counter to a block, unless it has expired or would be the first to be
// evicted there. word is its word before it was frozen.
func (s *sizeClass) mergeSlot(t *Table, index, word, into uint64, at Time) {
	tag := s.slotAt(index).tag.Load()
	for {
		end, live := algorithmOf(tag).expiry(s, index, word, at)
		if !live {
			s.countRemoval(t.recordLoss(s, tag, index, word, at))
			return
		}
		to, toWord, evicts, ok := s.chooseSlot(tag, target{into, into, index % ways}, at)
		if evicts && victimKind(tag) == victimKind(s.slotAt(to).tag.Load()) {
			moved := victim{weight: algorithmOf(tag).weight(s, index, word), end: end}
			owner := algorithmOf(s.slotAt(to).tag.Load())
			ownerEnd, _ := owner.expiry(s, to, toWord, at)
			evicted := victim{weight: owner.weight(s, to, toWord), end: ownerEnd}
			ok = !moved.before(&evicted)
		}
		if !ok {
			s.countRemoval(t.recordLoss(s, tag, index, word, at))
			return
		}
		if t.takeSlotLocked(s, to, toWord, at) {
			s.copyTo(index, to, word, toWord, tag)
			return
		}
	}
}

// displace makes room for id by moving a counter out of its two blocks. It reports whether it has.
func (s *sizeClass) displace(t *Table, at Time, id identity.ID, depth int) bool {
	first, second := s.blockPair(id)
	for j := range uint64(ways) {
		for _, block := range [2]uint64{first, second} {
			if s.moveToOther(t, at, block*ways+j, depth) {
				return true
			}
		}
	}
	return false
}

// moveToOther moves the counter in a slot to its other block if that has room. It reports whether
// the slot is free now. depth is how many further moves may make room.
func (s *sizeClass) moveToOther(t *Table, at Time, index uint64, depth int) bool {
	layout := s.layout.Load()
	tag := s.slotAt(index).tag.Load()
	block := index / ways
	if tag == 0 {
		return true
	}
	other := s.otherBlock(layout, block, tag)
	if s.countLiveIn(other, at) == ways {
		if depth == 0 {
			return false
		}
		for j := range uint64(ways) {
			if s.moveToOther(t, at, other*ways+j, depth-1) {
				break
			}
		}
	}
	held := s.lockBlocks(block, other)
	defer held.unlock()
	if s.slotAt(index).tag.Load() != tag || s.inUse() <= block || s.otherBlock(s.layout.Load(), block, tag) != other {
		return false
	}
	frozen, ok := s.freezeLocked(index)
	if !ok {
		return false
	}
	to, word, live, ok := s.chooseSlot(tag, target{other, other, index % ways}, at)
	if !ok || live || !t.takeSlotLocked(s, to, word, at) {
		s.slotAt(index).word.Store(frozen)
		return false
	}
	s.copyTo(index, to, frozen, word, tag^secondBit)
	pause(whileCountersMove)
	s.layout.Add(layoutMove)
	s.clearSlot(index, frozen)
	return true
}

// countLiveIn returns the number of live counters of a block.
func (s *sizeClass) countLiveIn(block uint64, at Time) int {
	n := 0
	for j := range uint64(ways) {
		index := block*ways + j
		tag := s.slotAt(index).tag.Load()
		word := s.slotAt(index).word.Load()
		if tag == 0 || word == dead {
			continue
		}
		if _, live := algorithmOf(tag).expiry(s, index, word, at); live {
			n++
		}
	}
	return n
}

// freezeLocked makes the word of a slot dead, so that its counter can move, and returns the
// previous word. It returns false without effect if the counter is being written: waiting for the
// writer would also delay others that need the locks of these blocks. The lock of the slot's block
// is held.
func (s *sizeClass) freezeLocked(index uint64) (word uint64, ok bool) {
	for {
		word = s.slotAt(index).word.Load()
		if s.isBusy(word) {
			return dead, false
		}
		if s.slotAt(index).word.CompareAndSwap(word, dead) {
			return word, true
		}
	}
}

// freezeBlock freezes the counters of a block whose tags satisfy moves. If one of them is being
// written, it freezes none and returns false. words are their previous words, and dead for the other
// slots.
func (s *sizeClass) freezeBlock(block uint64, moves func(tag uint64) bool) (words [ways]uint64, ok bool) {
	ok = true
	for j := range words {
		index := block*ways + uint64(j)
		words[j] = dead
		if tag := s.slotAt(index).tag.Load(); ok && tag != 0 && moves(tag) {
			words[j], ok = s.freezeLocked(index)
		}
	}
	for j, word := range words {
		if !ok && word != dead {
			s.slotAt(block*ways + uint64(j)).word.Store(word)
		}
	}
	return words, ok
}

// emptyFrozen clears the slots of a block that freezeBlock froze.
func (s *sizeClass) emptyFrozen(block uint64, words [ways]uint64) {
	for j, word := range words {
		if word != dead {
			s.clearSlot(block*ways+uint64(j), word)
		}
	}
}

// copyTo copies a frozen counter to a slot that takeSlotLocked took. word and old are the words of
// the two slots before that.
func (s *sizeClass) copyTo(from, to, word, old, tag uint64) {
	s.noteMoveLocked(from, word, s, to/ways, s.partialID(from/ways, s.slotAt(from).tag.Load()))
	payload := word &^ generationBit
	if s.size > 0 {
		payload = word & payloadMask
		s.noteAt(to).end.Store(s.noteAt(from).end.Load())
		s.noteAt(to).past.Store(s.noteAt(from).past.Load())
		toCells := s.cellsOf(to)
		for i := range s.cellsOf(from) {
			toCells[i].Store(s.cell(from, uint64(i)).Load())
		}
	}
	s.fillSlot(to, old, tag, payload)
}
