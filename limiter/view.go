package limiter

import "github.com/sluice-ratelimit/sluice/limiter/identity"

// read loads the counter of charge i at the time at into v. A window that has passed reads as a new
// one. A window in the future is kept: the clock was set back or the caller is late.
func (b *Batch) read(at Time, i int, v *view) {
	t := b.table
	if t == nil {
		b.readStored(at, i, v)
		return
	}
	c := &b.Charges[i]
	p := c.Policy
	id := c.ID
	partition := t.partition(b, c.Policy)
	a := p.algorithm()
	tag := c.tag()
	for {
		v.poison()
		// v is reused, so each field is set below. A single assignment of all fields costs 2 % of a
		// decision.
		v.head = 0
		v.newer = 0
		v.held = 0
		v.undone = 0
		v.reported = nil
		v.at = at
		v.salt = 0
		v.mirror = t.mirror
		s := partition.class(p)
		moves := uint64(0)
		strays := a.resizes()
		if strays {
			moves = t.moving[id.Lo%stripes].moves.Load()
		}
		layout := s.layout.Load()
		pause(beforeSearch)
		slot, index := s.findUnder(layout, tag, id)
		v.class = s
		v.slot = slot
		v.index = index
		v.misplaced = false
		if slot == nil {
			if s.layout.Load() != layout {
				continue
			}
			if strays {
				pause(beforeElsewhere)
				v.findElsewhere(partition, tag, id)
				if v.slot == nil && moves != t.moving[id.Lo%stripes].moves.Load() {
					continue // it may have moved to a class that was searched before
				}
			}
			if slot, s = v.slot, v.class; slot == nil {
				v.word = 0
				v.state = a.fresh(at, t.notBeforeHorizon(at), p)
				return
			}
		}
		pause(beforeWordLoad)
		word := slot.word.Load()
		v.word = word
		pause(afterWordLoad)
		// Otherwise the word may be that of the slot's next owner.
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

// isStable reports whether no goroutine is changing the slot with the given word. Otherwise it
// waits for that goroutine.
func (s *sizeClass) isStable(word uint64, id identity.ID) bool {
	switch {
	case word == dead:
		_, _, held := s.lockPair(id) // the lock is held while the slot changes its owner
		held.unlock()
		return false
	case s.size > 0: // the bit is the lock of the cells
		await()
		return false
	default:
		return true
	}
}

// findElsewhere searches for a resizing counter in the other size classes of its partition.
func (v *view) findElsewhere(partition *Partition, tag uint64, id identity.ID) {
	home := v.class
	for c := range partition.classes {
		s := partition.classes[c].Load()
		if sizes[c] == 0 || s == nil || s == home {
			continue
		}
		if slot, index := s.find(tag, id); slot != nil {
			v.class = s
			v.slot = slot
			v.index = index
			v.misplaced = true
			return
		}
	}
}

// write replaces the state of v by after. It reports whether v was unchanged; if not, it has no
// effect. If the state stays the same, nothing is written.
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

// replace is write for a counter that stays in its slot.
func (v *view) replace(p *Policy, after state) bool {
	pause(beforeWordSwap)
	a := p.algorithm()
	switch {
	case v.class.size == 0:
		return v.slot.word.CompareAndSwap(v.word, withGeneration(a.store(v, nil, 0, p, after), v.word))
	case v.reported == nil && after.mark == v.head && after.past == v.past: // the cells do not change
		return v.slot.word.CompareAndSwap(v.word, v.word&^payloadMask|after.used)
	case !v.lockCells():
		return false
	}
	v.slot.word.Store(nextVersion(v.word, a.store(v, v.class, v.index, p, after)))
	return true
}

// withGeneration returns word with the generation bit of old. A word that would equal dead gets the
// other generation, as if the slot had changed its owner.
func withGeneration(word, old uint64) uint64 {
	if word |= old & generationBit; word == dead {
		word ^= generationBit
	}
	return word
}
