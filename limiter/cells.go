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
// A reader of cells reads the word first and checks afterwards that its version is
// still the same. A writer swaps the lock into the word it has seen, writes, and stores
// the word without it, a version later. What only changes the payload is one
// compare-and-swap.
const (
	lockBit     = 1 << 63
	versionOne  = 1 << payloadBits
	payloadBits = 33
	payloadMask = versionOne - 1
)

// mostAhead is how far in the future the beginning of a counter may lie. It is further in the future only if the clock
// has been set back since.
const (
	mostAhead      = 3600 // seconds
	mostAheadNanos = mostAhead * int64(time.Second)
)

// begunAhead reports whether a counter begins again, because it began more than an hour after now: so a counter lasts for
// its window and an hour at most, whatever the clock has been. Every algorithm goes by this rule. A counter begins with its
// window, with its newest sub-window, with the newest hit of a log, with a place, with a penalty; a bucket begins when it was
// full and in debt by as much as it can be. Where the policy is not known, that is the longest window before the end. The
// scripts of package store have the same rule.
func begunAhead(began, now int64) bool {
	return began > now && uint64(began)-uint64(now) > uint64(mostAheadNanos) //nolint:gosec // began is later
}

// maxStamp is what a stamp is below, and above its negative.
const maxStamp = 1 << 62

// stamp returns the time in nanoseconds, away from the ends of its range so that
// a window and a year can be added or taken away.
func (t Time) stamp() int64 { return min(max(int64(t), -maxStamp), maxStamp) }

// nextVersion returns the word after a write to the cells.
func nextVersion(word, payload uint64) uint64 {
	return (word&^lockBit+versionOne)&^lockBit&^payloadMask | payload
}

// unchanged reports whether the cells, if there are any, have not been written since v
// was read.
func (v *view) unchanged() bool {
	return v.slot == nil || v.class.size == 0 || (v.slot.word.Load()^v.word)&^payloadMask == 0
}

// lockCells swaps the lock into v's word. It reports whether v was still true.
func (v *view) lockCells() bool {
	if !v.slot.word.CompareAndSwap(v.word, v.word|lockBit) {
		return false
	}
	pause(whileCellsHeld)
	return true
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

// withCells is what algorithms have in common whose counters have cells.
type withCells struct{ counting }

func (withCells) expiry(s *sizeClass, index, _ uint64, at Time) (end Time, live bool) {
	end = Time(s.note(index).end.Load())
	return end, end > at && !begunAhead(int64(end)-2*int64(MaxWindow), int64(at)) // a sub-window lasts that long
}
