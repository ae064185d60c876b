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
	// reset is the decision's if the hit is not to be counted after all.
	reset time.Duration
}

// logFast is lookFast for a single hit on a log that is on its shelf.
func logFast(at instant, space *Space, tag uint64, b *Batch, i int) (swap, bool) {
	c, d := &b.Charges[i], &b.Decisions[i]
	p := c.Policy
	limit := p.limit()
	if b.hits(i) != 1 || limit == 0 || !p.isPrepared() {
		return swap{}, false
	}
	sh := space.shelves[p.ready.class].Load()
	if sh == nil {
		return swap{}, false
	}
	v := view{shelf: sh}
	sh.touch(c.ID)
	if v.slot, v.index = sh.find(tag, c.ID); v.slot == nil {
		return swap{}, false
	}
	pause(beforeWordLoad)
	v.word = v.slot.word.Load()
	pause(afterWordLoad)
	if v.slot.tag.Load() != tag || v.word&lockBit != 0 {
		return swap{}, false
	}
	newest := v.loggedAt(1) // of some use if there is one
	if !v.loadLog(at, p) {
		return swap{}, false
	}
	now, window, past := at.stamp(), p.window(), v.past
	if past >= limit {
		retry := time.Duration(v.loggedAt(limit) + window - now)
		if p.CountRefused || v.slot.word.Load() != v.word {
			return swap{}, false
		}
		*d = Decision{Over: true, Before: past, RetryAfter: retry}
		d.overReset(p)
		return swap{}, true
	}
	d.admitted(past, 1, limit-past-1, time.Duration(max(1, v.num+window-now)))
	next := v.word & payloadMask >> logCountBits
	s := stamp{cell: sh.cell(v.index, next), note: sh.note(v.index), time: v.num, end: v.num + window, reset: 1}
	if past > 0 {
		s.reset = time.Duration(max(1, newest+window-now))
	}
	if n := len(b.Charges); len(b.stamps) < n {
		b.stamps = slices.Grow(b.stamps, n-len(b.stamps))[:n]
	}
	b.stamps[i] = s
	if next++; next == sh.stride() {
		next = 0
	}
	return swap{slot: v.slot, old: v.word, new: nextVersion(v.word, logPayload(next, past+1))}, true
}

// takeLog is take for a log, whose cells it holds meanwhile.
func (s *swap) takeLog(to *stamp) bool {
	pause(beforeWordSwap)
	if !s.slot.word.CompareAndSwap(s.old, s.old|lockBit) {
		return false
	}
	pause(whileCellsHeld)
	to.cell.Store(uint64(to.time)) //nolint:gosec // a time
	to.note.end.Store(to.end)
	s.slot.word.Store(s.new)
	return true
}
