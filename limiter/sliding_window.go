package limiter

import (
	"math"
	"time"
)

// A sliding window is a ring of k sub-windows, each Window/k long, rounded up to
// whole nanoseconds, and numbered from the epoch. What counts is the current one
// and the k before it, so that every interval of length Window lies within what
// was counted together: strict, and hits return at most one sub-window late.
//
// The payload of the word is the number of hits in the newest sub-window that was
// hit, the head. The note has the sum of the k before it, and when the last hit
// ceases to count, which tells the head's number. The cells have those k counts,
// two to a cell, at their number modulo k. So a hit in the current sub-window is
// one compare-and-swap, and the first in a new one moves counts under the lock.
// Sub-windows without hits are only zeroed then; to who reads before, the time
// since the head says what no longer counts.

// A ring is a policy in numbers of sub-windows.
type ring struct {
	length int64 // of a sub-window, in nanoseconds
	k      int
}

func (p *Policy) ring() ring {
	if p.isPrepared() {
		return p.ready.ring
	}
	k := int64(p.subWindows())
	length := (p.window() + k - 1) / k
	return ring{length: length, k: int(k)}
}

// subWindows is p.SubWindows, cut to its range.
func (p *Policy) subWindows() int { return int(min(max(p.SubWindows, 1), MaxSubWindows)) }

// number returns the sub-window that the time lies in.
func (r ring) number(stamp int64) int64 { return floorDiv(stamp, r.length) }

// end returns when hits of a sub-window cease to count.
func (r ring) end(number int64) int64 { return (number + int64(r.k) + 1) * r.length }

// count returns a cell of a ring.
func (s *shelf) count(index uint64, slot int64) uint64 {
	pause(beforeCellLoad)
	return s.cell(index, uint64(slot>>1)).Load() >> (slot & 1 * 32) & math.MaxUint32 //nolint:gosec // not negative
}

// setCount writes a cell of a ring that is held.
func (s *shelf) setCount(index uint64, slot int64, n uint64) {
	c, shift := s.cell(index, uint64(slot>>1)), slot&1*32 //nolint:gosec // not negative
	c.Store(c.Load()&^(math.MaxUint32<<shift) | n<<shift)
}

// loadRing fills in v's state. It reports false if the cells changed meanwhile.
func (v *view) loadRing(at instant, p *Policy) bool {
	r, now := p.ring(), at.stamp()
	k := int64(r.k)
	note := v.shelf.note(v.index)
	end, past := note.end.Load(), note.past.Load()
	current := r.number(now)
	v.head = end/r.length - k - 1
	switch count := v.word & payloadMask; {
	case v.head > current && end-now > r.end(0)+maxLateNanos: // the clock was set back
		v.state = state{num: current}
	case v.head >= current:
		v.state = state{used: count, past: past, num: v.head}
	case current-v.head > k:
		v.state = state{num: current}
	default:
		past += count
		for x := v.head - k; x < current-k; x++ {
			past -= v.shelf.count(v.index, floorMod(x, k))
		}
		v.state = state{past: past, num: current}
	}
	return v.same()
}

// ringCount returns the hits of a sub-window before the one of st.
func (v *view) ringCount(k, x int64) uint64 {
	switch {
	case v.slot == nil || x > v.head || x < v.head-k:
		return 0
	case x == v.head:
		return v.word & payloadMask
	default:
		return v.shelf.count(v.index, floorMod(x, k))
	}
}

// ringRetry returns the time until hits, at most the limit, have room.
func (v *view) ringRetry(at instant, p *Policy, st *state, hits uint64) (time.Duration, bool) {
	r := p.ring()
	k := int64(r.k)
	need := st.used + st.past + hits - p.limit()
	for x := st.num - k; x < st.num && st.past > 0; x++ {
		if n := v.ringCount(k, x); n < need {
			need -= n
			continue
		}
		return time.Duration(r.end(x) - at.stamp()), v.same()
	}
	return time.Duration(r.end(st.num) - at.stamp()), v.same()
}

// ringReset returns the time until no hit counts any more.
func (v *view) ringReset(at instant, p *Policy, st *state) time.Duration {
	r := p.ring()
	k := int64(r.k)
	x := st.num
	if st.used == 0 {
		if st.past == 0 {
			return 1
		}
		for x--; x > st.num-k && v.ringCount(k, x) == 0; {
			x--
		}
	}
	return time.Duration(max(1, r.end(x)-at.stamp()))
}

// storeRing is store for rings.
func (v *view) storeRing(s *shelf, index uint64, p *Policy, after *state) uint64 {
	r := p.ring()
	k := int64(r.k)
	note := s.note(index)
	s.fetch(index)
	if v.slot == nil || after.num <= v.head || after.num-v.head > k { // nothing of before counts
		for n := range uint64(k+1) / 2 { //nolint:gosec // positive
			if c := s.cell(index, n); c.Load() != 0 { // a load is cheaper
				c.Store(0)
			}
		}
	} else {
		s.setCount(index, floorMod(v.head, k), v.word&payloadMask)
		for x := v.head + 1; x < after.num; x++ {
			s.setCount(index, floorMod(x, k), 0)
		}
	}
	note.past.Store(after.past)
	note.end.Store(r.end(after.num))
	return after.used
}
