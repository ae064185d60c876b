package limiter

import (
	"sync/atomic"
	"time"
)

// permits are the cells of a counter as its word and its note have them.
type permits struct {
	cells []atomic.Uint64
	width uint64 // cells of a place, 1 or 2
	// high is above the number of each place that is in use, and count is how many were held when the
	// word was written. hint is where to look for a free one.
	high, count, hint uint64
	leasesGiven       uint64 // how many leases have been given, modulo 2^16
	first, end        int64  // stamps: no place is free by itself before first, and all are at end
	// maxLife is for how many milliseconds a place is held at most: if longer, it began ahead of the clock.
	maxLife int64
}

// permits returns those of v's slot. Numbers that are out of range, of a word that was read while the slot changed
// hands, must not lead out of the cells.
func (v *view) permits(p *Policy) permits {
	note := v.class.note(v.index)
	past, payload := note.past.Load(), v.word&payloadMask
	ps := permits{
		cells: v.class.cellsOf(v.index), width: p.width(), end: note.end.Load(), leasesGiven: past & nonceMask,
		count: payload & permitMask, first: -maxStamp, maxLife: maxPermitLife(p),
	}
	if before := past >> (permitBits + nonceBits); before < maxBefore {
		ps.first = ps.end - int64(before)*int64(time.Millisecond)
	}
	ps.high = min(payload>>permitBits, ps.capacity(v.class.stride()))
	ps.hint = min(past>>nonceBits&permitMask, ps.high)
	return ps
}

// firstBeforeEnd returns by how many milliseconds the first place is free by itself before the last.
func (ps *permits) firstBeforeEnd() uint64 {
	return min(uint64(-floorDiv(ps.first-ps.end, int64(time.Millisecond))), maxBefore) //nolint:gosec // not negative
}

// capacity returns how many places fit into so many cells. A division takes as long as all else that is read of a counter.
func (ps *permits) capacity(cells uint64) uint64 { return cells >> (ps.width - 1) }

// cell returns the cell of a place that has its time and its nonce.
func (ps *permits) cell(i uint64) *atomic.Uint64 { return &ps.cells[i*ps.width] }

// expiry returns when a place is free by itself, in milliseconds.
func (ps *permits) expiry(i uint64) int64 { return int64(ps.cell(i).Load()) >> nonceBits } //nolint:gosec // bits

// maxPermitLife returns for how many milliseconds a place that began an hour ahead is held, as begunAhead has it. Ends are
// rounded up.
func maxPermitLife(p *Policy) int64 {
	if p.isPrepared() {
		return p.ready.maxPermitLife
	}
	return (max(p.window(), int64(p.longestLife))+mostAheadNanos)/int64(time.Millisecond) + 1
}

func (ps *permits) isHeld(i uint64, now int64) bool {
	left := ps.expiry(i) - floorDiv(now, int64(time.Millisecond))
	return left > 0 && left <= ps.maxLife
}

// mayHaveExpired reports whether a place may be free that was not when the word was written: by itself, or because the clock was
// set back.
func (ps *permits) mayHaveExpired(now int64) bool {
	return now >= ps.first || ps.end-now > ps.maxLife*int64(time.Millisecond)
}

// countHeld returns how many places are held.
func (ps *permits) countHeld(now int64) (n uint64) {
	switch {
	case ps.end <= now:
		return 0
	case !ps.mayHaveExpired(now):
		return ps.count
	}
	for i := range ps.high {
		if ps.isHeld(i, now) {
			n++
		}
	}
	return n
}

// heldHits returns how many hits are held in places of two cells.
func (ps *permits) heldHits(now int64) (n uint64) {
	for i := range ps.high {
		if ps.isHeld(i, now) {
			n += ps.cells[i*ps.width+1].Load()
		}
	}
	return n
}

// nthFree returns the number of the nth place to be taken, counted from 1. As many as count are held.
func (ps *permits) nthFree(now int64, nth uint64) uint64 {
	if ps.count < ps.high { // else all that are in use are held
		for n := range ps.high {
			i := ps.hint + n
			if i >= ps.high {
				i -= ps.high
			}
			if ps.isHeld(i, now) {
				continue
			}
			if nth--; nth == 0 {
				return i
			}
		}
	}
	return ps.high + nth - 1
}

// acquire takes a place for a lease with the nonce, and returns the number of its cell. The cells are held by this goroutine.
func (ps *permits) acquire(now, window int64, nonce uint64) (cell uint64) {
	i := min(ps.nthFree(now, 1), ps.capacity(uint64(len(ps.cells)))-1) // a snapshot may say that fewer are held than are
	end := -floorDiv(-now-window, int64(time.Millisecond))
	ps.cell(i).Store(uint64(end)<<nonceBits | nonce) //nolint:gosec // bits
	ps.high, ps.hint, ps.count = max(ps.high, i+1), i+1, ps.count+1
	end *= int64(time.Millisecond)
	ps.first, ps.end = min(ps.first, end), max(ps.end, end)
	return i * ps.width
}

// anyHeld returns the number of a place that is held, or of the first.
func (ps *permits) anyHeld(now int64) uint64 {
	for i := range ps.high {
		if ps.isHeld(i, now) {
			return i
		}
	}
	return 0
}

// releaseN gives back so many places. The cells are held by this goroutine.
func (ps *permits) releaseN(many uint64, now int64) {
	for i := uint64(0); many > 0 && i < ps.high; i++ {
		if ps.isHeld(i, now) {
			ps.release(i << nonceBits)
			many--
		}
	}
}

// release gives back a place that is held. The cells are held by this goroutine.
func (ps *permits) release(lease uint64) {
	i := permitIndex(lease)
	ps.cell(i).Store(freeCell)
	ps.hint, ps.count = i, ps.count-1
}

// rescan frees the places that are free by themselves, and finds out when the first and the last of the others
// will be. The cells are held by this goroutine.
func (ps *permits) rescan(now int64) {
	high := ps.high
	ps.high, ps.first, ps.end = 0, maxStamp, now
	for i := range high {
		if ps.isHeld(i, now) {
			end := ps.expiry(i) * int64(time.Millisecond)
			ps.high, ps.first, ps.end = i+1, min(ps.first, end), max(ps.end, end)
		} else {
			ps.cell(i).Store(freeCell) // a caller who is late would find it held
		}
	}
	ps.hint = min(ps.hint, ps.high)
}
