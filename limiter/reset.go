package limiter

import (
	"runtime"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Reset makes the counter id under the policy p, in the partition (nil for the common
// one), equal to a new one at the time now, and returns what was used of it: as
// [Decision.Before]. An absent counter stays absent. For a look that changes
// nothing, decide a charge of 0 hits.
//
// It happens at one moment, before or after any charge on the counter. Three things
// that began before it go on: a window of a clock that was ahead stays the current
// one; a group that refuses, or a caller that goes away, gives back what it took
// before the reset, though that is gone already, if the window is the same; and
// calls that a leaky bucket holds keep the times that they were promised, while new
// ones do not wait behind them. A bucket that was reset may be reclaimed at once, so
// that its slot can change hands sooner than time would let it; see Table.insert.
func (t *Table) Reset(now Time, partition *Partition, id identity.ID, p *Policy) (used uint64) {
	if partition == nil {
		partition = &t.common
	}
	at, tag := instantOf(now), tagOf(id, p.Algorithm)
	defer runtime.KeepAlive(t) // its memory is not in Go's heap
	var v view
	for {
		t.read(at, partition, tag, id, p, &v)
		switch {
		case v.slot == nil:
			return 0
		case v.shelf.size > 0:
			if used = v.used + v.past; used == 0 && v.same() || used > 0 && v.clear(at, p) {
				return used
			}
		case isBucket(p.Algorithm):
			k := p.bucket(0)
			if used = k.hits(k.in(v.used, uint8(v.num))); v.empty(at, p) { //nolint:gosec // 0 or fineShift
				return used
			}
		default: // FixedWindow
			if used = v.used; v.empty(at, p) {
				return used
			}
		}
	}
}

// empty resets a counter of one word. It reports whether v was still true.
func (v *view) empty(at instant, p *Policy) bool {
	after := v.state
	after.used = 0
	pause(beforeWordSwap)
	return after == v.state || v.slot.word.CompareAndSwap(v.word, encode(at, p, &after, v.word))
}

// clear resets a counter with cells. It reports whether v was still true.
func (v *view) clear(at instant, p *Policy) bool {
	pause(beforeWordSwap)
	if !v.hold() {
		return false
	}
	note := v.shelf.note(v.index)
	if p.Algorithm == SlidingLog {
		note.end.Store(at.stamp())
	} else {
		r := p.ring()
		for x := range int64(r.k) {
			v.shelf.setCount(v.index, x, 0)
		}
		note.past.Store(0)
		note.end.Store(r.end(v.num)) // which tells the number of the sub-window
	}
	v.slot.word.Store(nextVersion(v.word, 0))
	return true
}
