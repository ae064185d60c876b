package limiter

import (
	"slices"
	"sync/atomic"
	"time"
)

// A stamp is what a hit on a log writes beside the word.
type stamp struct {
	cell *atomic.Uint64
	note *note
	time int64
	end  int64
	word uint64 // afterwards
	// reset is the decision's if the hit is not to be counted after all.
	reset time.Duration
}

// logFast is lookFast for a single hit on a log that is on its shelf. Its swap locks
// the cells, for taken.
func logFast(now Time, partition *Partition, tag uint64, c *Charge, d *Decision, b *Batch, i int) (swap, bool) {
	p := c.Policy
	limit := p.limit()
	if c.Hits != 1 || limit == 0 || !p.isPrepared() {
		return swap{}, false
	}
	sh := partition.shelves[p.ready.class].Load()
	if sh == nil {
		return swap{}, false
	}
	sh.touch(c.ID)
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
	l, count := sh.log(index, word), word&logCountMask
	at, window := now.stamp(), p.window()
	past, num, newest := uint64(0), at, int64(0)
	if count > 0 {
		past, num, newest = l.live(min(count, limit), at, window)
	}
	if past >= limit {
		return l.refuse(slot, word, limit, time.Duration(window-at), p, d)
	}
	d.admitted(past, 1, limit-past-1, time.Duration(max(1, num+window-at)))
	if len(b.stamps) < len(b.Charges) {
		b.stamps = slices.Grow(b.stamps, len(b.Charges)-len(b.stamps))[:len(b.Charges)]
	}
	s := &b.stamps[i]
	s.cell, s.note = &l.cells[l.next], sh.note(index)
	s.time, s.end, s.reset = num, num+window, 1
	if past > 0 {
		s.reset = time.Duration(max(1, newest+window-at))
	}
	next := l.next + 1
	if next == uint64(len(l.cells)) {
		next = 0
	}
	s.word = nextVersion(word, logPayload(next, past+1))
	return swap{slot: slot, old: word, new: word | lockBit}, true
}

// refuse is what logFast does if the log is full. left is the window less the time.
func (l log) refuse(slot *slot, word, limit uint64, left time.Duration, p *Policy, d *Decision) (swap, bool) {
	retry := time.Duration(l.at(limit)) + left
	if p.CountRefused || slot.word.Load() != word {
		return swap{}, false
	}
	*d = Decision{Over: true, Before: limit, RetryAfter: retry}
	d.overReset(p)
	return swap{}, true
}

// write writes the stamp to the cells of the slot, which are held, and releases them.
//
//go:noinline
func (s *stamp) write(to *slot) {
	pause(whileCellsHeld)
	s.cell.Store(uint64(s.time)) //nolint:gosec // a time
	s.note.end.Store(s.end)
	to.word.Store(s.word)
}
