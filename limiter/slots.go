package limiter

import "math"

// A view is one counter as it was at some moment.
type view struct {
	slot *slot  // nil if the counter is absent
	word uint64 // what slot held
	used uint64 // hits used in the window
	end  int64  // of the window, Unix seconds
}

// pair returns the numbers of the two buckets in which id may have its slot, the
// preferred one first. They differ.
func (t *Table) pair(id ID) (first, second uint64) {
	n := uint64(len(t.buckets))
	first = id.Lo & math.MaxUint32 * n >> 32
	second = id.Lo >> 32 * n >> 32
	if second == first {
		second++
		if second == n {
			second = 0
		}
	}
	return first, second
}

// find returns the slot with the tag, nil if there is none.
func (t *Table) find(tag uint64, id ID) *slot {
	first, second := t.pair(id)
	b := &t.buckets[first]
	for i := range b {
		if b[i].tag.Load() == tag {
			return &b[i]
		}
	}
	b = &t.buckets[second]
	for i := range b {
		if b[i].tag.Load() == tag {
			return &b[i]
		}
	}
	return nil
}

// read returns the counter at the time at. A window that has passed reads as a
// new one; one that is still to come is kept, because the clock went back or
// this caller is late.
func (t *Table) read(at instant, tag uint64, id ID, p *Policy) view {
	for {
		s := t.find(tag, id)
		if s == nil {
			return view{end: windowEnd(p, t.notLate(at).sec)}
		}
		word := s.word.Load()
		// Without this the word might be that of the slot's next owner.
		if s.tag.Load() != tag {
			continue
		}
		if word == dead {
			held := t.lock(t.pair(id)) // whoever changes the slot holds it
			held.unlock()
			continue
		}
		if left, live := windowLeft(word, at.sec); live {
			return view{slot: s, word: word, used: word & countMask, end: at.sec + left}
		}
		return view{slot: s, word: word, end: windowEnd(p, at.sec)}
	}
}

// write replaces what v shows by used hits in the window that ends at v.end. It
// reports whether v was still true; if not, nothing has happened.
func (t *Table) write(at instant, tag uint64, id ID, p *Policy, v view, used uint64) bool {
	if v.slot == nil {
		return t.insert(at, tag, id, p, v.end, used)
	}
	return v.slot.word.CompareAndSwap(v.word, windowWord(v.end, v.word, used))
}
