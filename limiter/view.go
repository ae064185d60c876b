package limiter

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// read makes v the counter of charge i at the time at. A window that has passed reads as a
// new one; one that is still to come is kept, because the clock went back or
// this caller is late.
func (b *Batch) read(at Time, i int, v *view) {
	t := b.table
	if t == nil {
		b.readStored(at, i, v)
		return
	}
	c := &b.Charges[i]
	p, id, partition := c.Policy, c.ID, t.partition(b)
	a, tag := p.algorithm(), c.tag()
	for {
		v.poison()
		// v has been that of other counters, or of one that is gone by now, so each field is set below. One assignment of
		// all would cost 2 % of a decision.
		v.head, v.newer, v.reported, v.at, v.salt, v.mirror = 0, 0, nil, at, 0, t.mirror
		s, moves := partition.class(p), uint64(0)
		strays := partition.mayBeElsewhere(a)
		if strays {
			moves = t.moving[id.Lo%stripes].moves.Load()
		}
		layout := s.layout.Load()
		pause(beforeSearch)
		slot, index := s.findUnder(layout, tag, id)
		v.class, v.slot, v.index, v.misplaced = s, slot, index, false
		if slot == nil {
			if s.layout.Load() != layout {
				continue
			}
			if strays {
				pause(beforeElsewhere)
				v.findElsewhere(partition, p, tag, id)
				if v.slot == nil && moves != t.moving[id.Lo%stripes].moves.Load() {
					continue // it may have moved from where it was not searched for yet
				}
			}
			if slot, s = v.slot, v.class; slot == nil {
				v.word, v.state = 0, a.fresh(at, t.notBeforeHorizon(at), p)
				return
			}
		}
		pause(beforeWordLoad)
		word := slot.word.Load()
		v.word = word
		pause(afterWordLoad)
		// Without this the word might be that of the slot's next owner.
		if slot.tag.Load()&^secondBit != tag {
			continue
		}
		if word&generationBit != 0 && !s.isStable(word, id) {
			continue
		}
		if a.load(v, at, p) {
			return
		}
	}
}

// isStable reports whether no goroutine is changing the slot with the word. If one is,
// it waits for it.
func (s *sizeClass) isStable(word uint64, id identity.ID) bool {
	switch {
	case word == dead:
		_, _, held := s.lockPair(id) // which is held while the slot changes hands
		held.unlock()
		return false
	case s.size > 0: // the bit is the lock of the cells
		await()
		return false
	default:
		return true
	}
}

// findElsewhere searches for a counter outside the size class where it belongs: for a log in
// the other ones, and for any counter in other partitions that may have it.
func (v *view) findElsewhere(partition *Partition, p *Policy, tag uint64, id identity.ID) {
	home := v.class
	try := func(in *Partition, c int) bool {
		s := in.classes[c].Load()
		if s == nil || s == home {
			return false
		}
		slot, index := s.find(tag, id)
		if slot != nil {
			v.class, v.slot, v.index, v.misplaced = s, slot, index, true
		}
		return slot != nil
	}
	search := func(in *Partition) bool {
		if !p.algorithm().resizes() {
			return try(in, p.class())
		}
		for c := range in.classes {
			if sizes[c] > 0 && try(in, c) {
				return true
			}
		}
		return false
	}
	if search(partition) {
		return
	}
	if others := partition.others.Load(); others != nil {
		_ = slices.ContainsFunc(*others, search)
	}
}

// write replaces what v shows by the state after. It reports whether v was still
// true; if not, nothing has happened. Of a state that stays the same nothing is
// written.
func (b *Batch) write(at Time, i int, v *view, after state) bool {
	switch {
	case after == v.state:
		return v.unchanged()
	case b.table == nil:
		b.writeStored(i, v, after)
		return true
	case v.slot == nil || v.misplaced:
		return b.table.insert(at, b, &b.Charges[i], v, after)
	default:
		return v.replace(b.Charges[i].Policy, after)
	}
}

// replace is write for a counter that has its slot and stays in it.
func (v *view) replace(p *Policy, after state) bool {
	pause(beforeWordSwap)
	a := p.algorithm()
	switch {
	case v.class.size == 0:
		return v.slot.word.CompareAndSwap(v.word, withGeneration(a.store(v, nil, 0, p, after), v.word))
	case v.reported == nil && after.num == v.head && after.past == v.past: // the cells stay as they are
		return v.slot.word.CompareAndSwap(v.word, v.word&^payloadMask|after.used)
	case !v.lockCells():
		return false
	}
	v.slot.word.Store(nextVersion(v.word, a.store(v, v.class, v.index, p, after)))
	return true
}

// withGeneration returns a word with the generation of old. One that would be dead has
// the other: the slot may as well have changed hands.
func withGeneration(word, old uint64) uint64 {
	if word |= old & generationBit; word == dead {
		word ^= generationBit
	}
	return word
}
