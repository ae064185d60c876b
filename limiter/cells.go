package limiter

import (
	"runtime"
	"time"
)

// The word of a counter with cells, from the high bits to the low:
//
//	 1 bit   lock: the cells are being written
//	30 bits  version: incremented by every write to the cells
//	33 bits  payload: the part that changes with every hit
//
// A reader loads the word, reads the cells and then checks that the version is unchanged. A writer
// sets the lock bit by a compare-and-swap of the word it has read, writes the cells, and stores the
// word with the next version and without the lock. A change of the payload alone is one
// compare-and-swap.
const (
	lockBit     = 1 << 63
	versionOne  = 1 << payloadBits
	payloadBits = 33
	payloadMask = versionOne - 1
)

// maxAhead is how far in the future a counter may begin. A counter that begins later was charged
// before the clock was set back.
const (
	maxAhead      = 3600 // seconds
	maxAheadNanos = maxAhead * int64(time.Second)
)

// begunAhead reports whether a counter that began at began must start again, because that is more
// than an hour after now. A counter therefore lasts for its window plus an hour at most, regardless
// of the clock. All algorithms and the scripts of package store apply this rule.
//
// A counter begins with its window, its newest sub-window, its newest logged hit, its permit or its
// penalty. A bucket begins at the time at which it would have been full with the maximum debt.
// Where the policy is not known, began is the end minus the longest window.
func begunAhead(began, now int64) bool {
	return began > now && uint64(began)-uint64(now) > uint64(maxAheadNanos) //nolint:gosec // began > now
}

// maxStamp bounds the absolute value of a stamp.
const maxStamp = 1 << 62

// stamp returns the time in nanoseconds, clamped so that adding or subtracting a window and a year
// cannot overflow.
func (t Time) stamp() int64 { return min(max(int64(t), -maxStamp), maxStamp) }

// nextVersion returns the word after a write to the cells.
func nextVersion(word, payload uint64) uint64 {
	return (word&^lockBit+versionOne)&^lockBit&^payloadMask | payload
}

// unchanged reports whether the cells, if any, were not written since v was read.
func (v *view) unchanged() bool {
	return v.slot == nil || v.class.size == 0 || (v.slot.word.Load()^v.word)&^payloadMask == 0
}

// lockCells sets the lock bit in v's word. It returns false if v has changed.
func (v *view) lockCells() bool {
	if !v.slot.word.CompareAndSwap(v.word, v.word|lockBit) {
		return false
	}
	pause(whileCellsHeld)
	return true
}

// await yields to the goroutine that holds the lock of the cells.
func await() {
	pause(whileAwaiting)
	runtime.Gosched()
}

// floorDiv returns a / b rounded down.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// floorMod returns the remainder of floorDiv.
func floorMod(a, b int64) int64 {
	if a %= b; a < 0 {
		a += b
	}
	return a
}

// withCells is embedded by algorithms whose counters have cells.
type withCells struct{ counting }

func (withCells) expiry(s *sizeClass, index, _ uint64, at Time) (end Time, live bool) {
	end = Time(s.noteAt(index).end.Load())
	// A counter ends up to one window and one sub-window after it began.
	return end, end > at && !begunAhead(int64(end)-2*int64(MaxWindow), int64(at))
}
