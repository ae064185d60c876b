package limiter

import (
	"sync/atomic"
	"time"
)

// permits are the cells of a concurrency counter with the decoded word and note.
type permits struct {
	cells []atomic.Uint64
	width uint64 // cells per permit, 1 or 2
	limit uint64 // maximum number of permits
	// high is one more than the highest permit in use, count the number of held permits when the
	// word was written, and hint where to search for a free one.
	high, count, hint uint64
	leasesGranted     uint64 // number of leases granted, modulo 2^16
	first, end        int64  // stamps of the first and the last expiry
	// maxLife is the maximum life of a permit in milliseconds. A permit with more time left was
	// granted before the clock was set back.
	maxLife int64
}

// permits decodes the permits of v's slot. Numbers are clamped to the cells, since the word may
// have been read while the slot changed its owner.
func (v *view) permits(p *Policy) permits {
	note := v.class.noteAt(v.index)
	past := note.past.Load()
	payload := v.word & payloadMask
	ps := permits{
		cells: v.class.cellsOf(v.index), width: p.width(), limit: permitLimit(p), end: note.end.Load(), leasesGranted: past & nonceMask,
		count: payload & permitMask, first: -maxStamp, maxLife: maxPermitLife(p),
	}
	if before := past >> (permitBits + nonceBits); before < maxBefore {
		ps.first = ps.end - int64(before)*int64(time.Millisecond)
	}
	ps.high = min(payload>>permitBits, ps.capacity(v.class.stride()))
	ps.hint = min(past>>nonceBits&permitMask, ps.high)
	return ps
}

// firstBeforeEnd returns the milliseconds from the first to the last expiry.
func (ps *permits) firstBeforeEnd() uint64 {
	return min(uint64(-floorDiv(ps.first-ps.end, int64(time.Millisecond))), maxBefore) //nolint:gosec // not negative
}

// capacity returns how many permits fit into the given number of cells. It shifts, since a division
// takes as long as all other reads of a counter.
func (ps *permits) capacity(cells uint64) uint64 { return cells >> (ps.width - 1) }

// cell returns the cell with the expiry and the nonce of a permit.
func (ps *permits) cell(i uint64) *atomic.Uint64 { return &ps.cells[i*ps.width] }

// expiry returns the expiry of a permit in milliseconds.
func (ps *permits) expiry(i uint64) int64 { return int64(ps.cell(i).Load()) >> nonceBits } //nolint:gosec // bits

// maxPermitLife returns the maximum life of a permit that began an hour ahead, in milliseconds; see
// begunAhead. Expiries are rounded up.
func maxPermitLife(p *Policy) int64 {
	if p.isPrepared() {
		return p.ready.maxPermitLife
	}
	return (max(p.window(), int64(p.longestLife))+maxAheadNanos)/int64(time.Millisecond) + 1
}

func (ps *permits) isHeld(i uint64, now int64) bool {
	left := ps.expiry(i) - floorDiv(now, int64(time.Millisecond))
	return left > 0 && left <= ps.maxLife
}

// mayHaveExpired reports whether a permit may have expired since the word was written, including by
// setting the clock back.
func (ps *permits) mayHaveExpired(now int64) bool {
	return now >= ps.first || ps.end-now > ps.maxLife*int64(time.Millisecond)
}

// countHeld returns the number of held permits.
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

// isVoid reports whether a permit of a reservation is held without hits, after a reset.
func (ps *permits) isVoid(i uint64, now int64) bool {
	return ps.width > 1 && i < ps.high && ps.isHeld(i, now) && ps.cells[i*ps.width+1].Load() == 0
}

// void sets the hits of all permits to 0. The caller holds the lock of the cells.
func (ps *permits) void(now int64) {
	for i := range ps.high {
		if ps.isHeld(i, now) {
			ps.cells[i*ps.width+1].Store(0)
		}
	}
}

// heldHits returns the number of hits held by permits of two cells.
func (ps *permits) heldHits(now int64) (n uint64) {
	for i := range ps.high {
		if ps.isHeld(i, now) {
			n += ps.cells[i*ps.width+1].Load()
		}
	}
	return n
}

// nthFree returns the nth free permit, from 1, given that count permits are held. If all are held, it
// returns a void one.
func (ps *permits) nthFree(now int64, nth uint64) uint64 {
	for i := uint64(0); ps.count >= ps.limit && i < ps.high; i++ {
		if ps.isVoid(i, now) {
			return i
		}
	}
	if ps.count < ps.high { // otherwise all permits below high are held
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

// acquire acquires a permit for a lease with the nonce and returns the index of its cell. The
// caller holds the lock of the cells.
func (ps *permits) acquire(now, window int64, nonce uint64) (cell uint64) {
	i := min(ps.nthFree(now, 1), ps.capacity(uint64(len(ps.cells)))-1) // count in a snapshot may be too low
	if !ps.isVoid(i, now) {
		ps.count++
	}
	end := -floorDiv(-now-window, int64(time.Millisecond))
	ps.cell(i).Store(uint64(end)<<nonceBits | nonce) //nolint:gosec // bits
	ps.high = max(ps.high, i+1)
	ps.hint = i + 1
	end *= int64(time.Millisecond)
	ps.first = min(ps.first, end)
	ps.end = max(ps.end, end)
	return i * ps.width
}

// anyHeld returns a held permit, or 0.
func (ps *permits) anyHeld(now int64) uint64 {
	for i := range ps.high {
		if ps.isHeld(i, now) {
			return i
		}
	}
	return 0
}

// releaseN releases n permits. The caller holds the lock of the cells.
func (ps *permits) releaseN(n uint64, now int64) {
	for i := uint64(0); n > 0 && i < ps.high; i++ {
		if ps.isHeld(i, now) {
			ps.release(i << nonceBits)
			n--
		}
	}
}

// release releases a held permit. The caller holds the lock of the cells.
func (ps *permits) release(lease uint64) {
	i := permitIndex(lease)
	ps.cell(i).Store(freeCell)
	ps.hint = i
	ps.count--
}

// renewLease gives the permit of a returned lease a nonce that differs from its present one, and
// returns the new lease. The caller holds the lock of the cells.
func (v *view) renewLease(c *Charge) uint64 {
	ps := v.permits(c.Policy)
	i := permitIndex(c.Hits)
	old := ps.cell(i).Load()
	nonce := c.Hits & nonceMask
	salt := v.class.nonces.salt(c.ID, v.at)
	for nonce == old&nonceMask {
		ps.leasesGranted++
		nonce = v.class.nonces.nonce(salt, ps.leasesGranted)
	}
	ps.cell(i).Store(old&^nonceMask | nonce)
	past := &v.class.noteAt(v.index).past
	past.Store(past.Load()&^nonceMask | ps.leasesGranted&nonceMask)
	return FirstLease + i<<nonceBits + nonce
}

// rescan clears expired permits and updates high, first and end. The caller holds the lock of the
// cells.
func (ps *permits) rescan(now int64) {
	high := ps.high
	ps.high = 0
	ps.first = maxStamp
	ps.end = now
	for i := range high {
		if ps.isHeld(i, now) {
			end := ps.expiry(i) * int64(time.Millisecond)
			ps.high = i + 1
			ps.first = min(ps.first, end)
			ps.end = max(ps.end, end)
		} else {
			ps.cell(i).Store(freeCell) // a late caller would find it held
		}
	}
	ps.hint = min(ps.hint, ps.high)
}
