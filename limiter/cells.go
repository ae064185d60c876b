package limiter

import (
	"runtime"
	"time"
)

// Counters of more than one word have cells beside their slot, and a word like
// this, from the high bits to the low:
//
//	 1 bit   lock: the cells are being written
//	30 bits  version: grows with every write to the cells
//	33 bits  what else changes from hit to hit, the payload
//
// Whoever reads cells reads the word first and checks afterwards that its version
// is still the same. Whoever writes them swaps the lock into the word it has seen,
// writes, and stores the word without it, a version later. What only changes the
// payload is one compare-and-swap.
const (
	lockBit     = 1 << 63
	versionOne  = 1 << payloadBits
	payloadBits = 33
	payloadMask = versionOne - 1
)

// classes are the numbers of cells of a counter; each has its shelves. People limit
// by round decimal numbers, so most logs fill theirs: a log of ten would take half as
// much again among powers of two. Rings of ten have five, since a cell holds two of
// their sub-windows.
var classes = [...]int{0, 2, 5, 10, 20, 30, 60, 100, 200, 300, 600, 1000, 2000, MaxLog}

// class returns the index into classes of p's counters.
func (p *Policy) class() int {
	if p.isPrepared() {
		return p.ready.class
	}
	var n int
	switch p.Algorithm {
	case SlidingWindow:
		n = (p.subWindows() + 1) / 2
	case SlidingLog:
		n = int(min(p.limit(), MaxLog))
	default:
		return 0
	}
	c := 1
	for classes[c] < n {
		c++
	}
	return c
}

// limit is p.Limit, cut to what a counter can hold.
func (p *Policy) limit() uint64 {
	if p.Algorithm == SlidingLog {
		return min(uint64(p.Limit), MaxLog)
	}
	return uint64(p.Limit)
}

// CounterBytes returns the memory that one live counter of the policy takes.
func CounterBytes(p Policy) int { return slotBytes(classes[p.class()]) }

// slotBytes returns the memory that a counter with so many cells takes.
func slotBytes(cells int) int {
	if cells == 0 {
		return blockBytes / ways
	}
	return blockBytes/ways + noteBytes + 8*cells
}

// maxStamp is what a stamp is below, and above its negative.
const maxStamp = 1 << 62

// stamp returns the time in nanoseconds, away from the ends of its range so that
// a window and a year can be added or taken away.
func (t Time) stamp() int64 { return min(max(int64(t), -maxStamp), maxStamp) }

func (i instant) stamp() int64 { return i.time().stamp() }

// nextVersion returns the word after a write to the cells.
func nextVersion(word, payload uint64) uint64 {
	return (word&^lockBit+versionOne)&^lockBit&^payloadMask | payload
}

// same reports whether the cells, if there are any, have not been written since v
// was read.
func (v *view) same() bool {
	return v.slot == nil || v.shelf.size == 0 || (v.slot.word.Load()^v.word)&^payloadMask == 0
}

// hold swaps the lock into v's word. It reports whether v was still true.
func (v *view) hold() bool {
	if !v.slot.word.CompareAndSwap(v.word, v.word|lockBit) {
		return false
	}
	pause(whileCellsHeld)
	return true
}

// write replaces the cells that v shows by those of after.
func (v *view) writeCells(p *Policy, after *state) bool {
	if p.Algorithm == SlidingWindow && after.num == v.head {
		return v.slot.word.CompareAndSwap(v.word, v.word&^payloadMask|after.used)
	}
	if !v.hold() {
		return false
	}
	v.slot.word.Store(nextVersion(v.word, v.store(v.shelf, v.index, p, after)))
	return true
}

// store writes the cells and the note of after to a slot that nobody else reads
// or writes, which may be v's own. It returns the payload.
func (v *view) store(s *shelf, index uint64, p *Policy, after *state) uint64 {
	if p.Algorithm == SlidingWindow {
		return v.storeRing(s, index, p, after)
	}
	return v.storeLog(s, index, p, after)
}

// await lets the goroutine run that holds the cells.
func await() {
	pause(whileAwaiting)
	runtime.Gosched()
}

// floorDiv divides and rounds down.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// floorMod is what floorDiv leaves.
func floorMod(a, b int64) int64 {
	if a %= b; a < 0 {
		a += b
	}
	return a
}

// window returns p.Window, cut to its range.
func (p *Policy) window() int64 { return int64(min(max(p.Window, time.Second), MaxWindow)) }
