package limiter

import (
	"fmt"
	"math"
	"time"
)

// A sliding window is a ring of k sub-windows. Each is Window/k long, rounded up to whole
// nanoseconds, and they are numbered from the epoch. The current sub-window and the k before it
// count, so every interval of length Window is covered by sub-windows that were counted together.
// The limit is strict, and capacity returns at most one sub-window late.
//
// The payload of the word is the number of hits in the newest sub-window with hits, the head. The
// note has the sum of the k sub-windows before it and the time at which the head ceases to count,
// from which the number of the head follows. The cells have the k counts, two per cell, indexed by
// their number modulo k. A hit in the current sub-window is a compare-and-swap; the first hit in a
// new one updates the cells under the lock. Sub-windows without hits are zeroed only then. Until
// then readers ignore the counts that have expired by their time.

// slidingWindow implements [SlidingWindow].
type slidingWindow struct{ withCells }

// A Ring describes the sub-windows of a [SlidingWindow]. They are numbered from the Unix epoch.
type Ring struct {
	length   int64 // length of a sub-window, in nanoseconds; approximate with a calendar
	k        int64
	calendar *Calendar // if set, each of its windows has k sub-windows
}

// Ring returns the sub-windows of a [SlidingWindow].
func (p *Policy) Ring() Ring {
	if p.isPrepared() {
		return p.ready.ring
	}
	k := int64(min(max(p.SubWindows, 1), MaxSubWindows))
	return Ring{length: (p.window() + k - 1) / k, k: k, calendar: p.Calendar}
}

func (slidingWindow) validate(p *Policy) error {
	if p.SubWindows < 1 || p.SubWindows > MaxSubWindows {
		return fmt.Errorf("%d sub-windows: must be 1 to %d", p.SubWindows, MaxSubWindows)
	}
	return nil
}

func (slidingWindow) cells(p *Policy) int { return int(p.Ring().k+1) / 2 }

func (slidingWindow) fresh(_, from Time, p *Policy) state {
	return state{mark: p.Ring().number(from.stamp())}
}

func (slidingWindow) load(v *view, at Time, p *Policy) bool {
	r := p.Ring()
	note := v.class.noteAt(v.index)
	end := note.end.Load()
	past := note.past.Load()
	v.head = end/r.length - r.k - 1
	switch {
	case r.calendar != nil:
		v.head = r.calendar.ringHead(end, at.stamp(), r.k)
		v.advance(r, at.stamp(), past)
	case v.head == floorDiv(at.stamp(), r.length): // same as advance, without a call
		v.state = state{used: v.word & payloadMask, past: past, mark: v.head}
	default:
		v.advance(r, at.stamp(), past)
	}
	return v.unchanged()
}

// advance sets v's state to the ring at the time now. past is the sum of the sub-windows before its
// head.
func (v *view) advance(r Ring, now int64, past uint64) {
	current := r.number(now)
	switch count := v.word & payloadMask; {
	case r.setBack(v.head, current, now):
		v.state = state{mark: current}
	case v.head >= current:
		v.state = state{used: count, past: past, mark: v.head}
	case current-v.head > r.k:
		v.state = state{mark: current}
	default:
		past += count
		for x := v.head - r.k; x < current-r.k; x++ {
			past -= min(past, v.countOf(r.k, x)) // past may be less if the calendar has changed
		}
		v.state = state{past: past, mark: current}
	}
}

func (a slidingWindow) decide(
	v *view, at Time, c *Charge, hits uint64, _ time.Duration, st state, d *Decision,
) (after state, ok bool) {
	return decideCount(a, uint64(c.Policy.Limit), v, at, c, hits, st, d)
}

func (slidingWindow) force(_ uint64, st state, hits uint64) (after state, grown uint64) {
	grown = min(hits, math.MaxUint32-st.used) // capacity of a cell
	st.used += grown
	return st, grown
}

func (slidingWindow) retryAfter(
	v *view, at Time, p *Policy, limit uint64, st state, hits uint64,
) (time.Duration, bool) {
	r := p.Ring()
	need := st.used + st.past + hits - limit
	for x := st.mark - r.k; x < st.mark && st.past > 0; x++ {
		if n := v.countOf(r.k, x); n < need {
			need -= n
			continue
		}
		return time.Duration(r.subWindowEnd(x) - at.stamp()), v.unchanged()
	}
	return time.Duration(r.subWindowEnd(st.mark) - at.stamp()), v.unchanged()
}

func (slidingWindow) finish(v *view, at Time, p *Policy, _ time.Duration, st state, d *Decision) {
	if d.finishOver(p) {
		return
	}
	r := p.Ring()
	x := st.mark
	d.Remaining = remaining(uint64(p.Limit), st)
	d.Reset = 1
	if st.used == 0 {
		if st.past == 0 {
			return
		}
		for x--; x > st.mark-r.k && v.countIn(st, r.k, x) == 0; {
			x--
		}
	}
	d.Reset = time.Duration(max(1, r.subWindowEnd(x)-at.stamp()))
}

// undo removes hits of the sub-window mark. Cells of that sub-window change if a later one has begun.
func (slidingWindow) undo(v *view, _, _ Time, p *Policy, mark int64, d *Decision) (after state, lost bool) {
	after = v.state
	if v.mark == mark {
		after.used -= min(after.used, d.Charged)
		return after, false
	}
	if k := p.Ring().k; mark < v.mark && mark >= v.mark-k {
		v.undone = mark
		after.past -= min(after.past, d.Charged, v.countOf(k, mark))
	}
	return after, false
}

func (slidingWindow) store(v *view, s *sizeClass, index uint64, p *Policy, after state) uint64 {
	r := p.Ring()
	note := s.noteAt(index)
	s.loadCells(index)
	switch {
	case v.reported != nil: // copy the counts of the store
		reported := view{class: &externalClass, reported: v.reported, head: v.reported.SubWindow}
		for x := after.mark - r.k; x < after.mark; x++ {
			s.setRingCount(index, floorMod(x, r.k), reported.countOf(r.k, x))
		}
	case after.past == 0: // no earlier hits count
		for n := range uint64(r.k+1) / 2 { //nolint:gosec // positive
			if c := s.cell(index, n); c.Load() != 0 { // a load is cheaper
				c.Store(0)
			}
		}
	default:
		if s != v.class { // the counter moves
			for n := range s.stride() {
				s.cell(index, n).Store(v.class.cell(v.index, n).Load())
			}
		}
		count := v.word & payloadMask
		for x := v.head; x < after.mark; x++ {
			s.setRingCount(index, floorMod(x, r.k), count)
			count = 0
		}
		if after.past < v.past {
			s.setRingCount(index, floorMod(v.undone, r.k), v.countIn(after, r.k, v.undone))
		}
	}
	note.past.Store(after.past)
	note.end.Store(r.subWindowEnd(after.mark))
	return after.used
}

func (slidingWindow) weight(s *sizeClass, index, word uint64) uint64 {
	return word&payloadMask + s.noteAt(index).past.Load()
}

func (slidingWindow) importState(v *view, at Time, p *Policy) {
	r := p.Ring()
	s := v.reported
	if maxNumber := maxStamp / r.length; len(s.Counts) == 0 || s.SubWindow > maxNumber || s.SubWindow < -maxNumber {
		v.head = math.MinInt64 / 2
		v.word = 0
		v.state = state{mark: r.number(at.stamp())}
		return
	}
	v.head = s.SubWindow
	v.word = uint64(s.Counts[0])
	past := uint64(0)
	for x := v.head - r.k; x < v.head; x++ {
		past += v.countOf(r.k, x)
	}
	v.advance(r, at.stamp(), past)
}

func (slidingWindow) export(v *view, _ Time, p *Policy, st state, s *State) {
	r := p.Ring()
	s.SubWindow, s.Counts = st.mark, append(s.Counts[:0], uint32(st.used)) //nolint:gosec // capacity of a cell
	for x := st.mark - 1; x >= st.mark-r.k && st.past > 0; x-- {
		s.Counts = append(s.Counts, uint32(v.countOf(r.k, x))) //nolint:gosec // as above
	}
}

// merge replaces the local counter: store writes the reported counts.
func (slidingWindow) merge(v, there *view, _ Time, _ *Batch, _ int) (after state, ok bool) {
	v.reported = there.reported
	return there.state, true
}

// number returns the sub-window that contains the time.
func (r Ring) number(stamp int64) int64 {
	if r.calendar != nil {
		return r.calendar.partAt(stamp, r.k)
	}
	return floorDiv(stamp, r.length)
}

// start returns when a sub-window begins.
func (r Ring) start(number int64) int64 {
	if r.calendar != nil {
		return r.calendar.partStart(number, r.k)
	}
	return number * r.length
}

// subWindowEnd returns when the hits of a sub-window cease to count.
func (r Ring) subWindowEnd(number int64) int64 {
	number += r.k + 1
	if r.calendar != nil {
		return r.calendar.partStart(number, r.k)
	}
	return number * r.length
}

// setBack reports whether head, a sub-window with hits, is so far ahead of the current one that the
// clock was set back.
func (r Ring) setBack(head, current, now int64) bool {
	return head > current && begunAhead(r.start(head), now)
}

// Length returns the length of a sub-window. It is approximate if there is a [Ring.Calendar].
func (r Ring) Length() time.Duration { return time.Duration(r.length) }

// Calendar returns the calendar whose windows have [Ring.K] sub-windows each, or nil.
func (r Ring) Calendar() *Calendar { return r.calendar }

// K returns how many sub-windows count in addition to the newest.
func (r Ring) K() int64 { return r.k }

// Number returns the sub-window that contains the time.
func (r Ring) Number(at Time) int64 { return r.number(at.stamp()) }

// Start returns the start of the sub-window that contains the time.
func (r Ring) Start(at Time) Time { return Time(r.start(r.number(at.stamp()))) }

// End returns the end of the sub-window that contains the time.
func (r Ring) End(at Time) Time { return Time(r.start(r.number(at.stamp()) + 1)) }

// ClockSetBack reports whether head, a sub-window with hits, is so far ahead of the time that the
// clock was set back.
func (r Ring) ClockSetBack(head int64, at Time) bool {
	return r.setBack(head, r.number(at.stamp()), at.stamp())
}

// countOf returns the hits of sub-window x, which is before that of v's state.
func (v *view) countOf(k, x int64) uint64 {
	switch {
	case v.class == &externalClass:
		if n := v.head - x; n >= 0 && n <= k && n < int64(len(v.reported.Counts)) {
			return uint64(v.reported.Counts[n])
		}
		return 0
	case v.slot == nil || x > v.head || x < v.head-k:
		return 0
	case x == v.head:
		return v.word & payloadMask
	default:
		return v.class.ringCount(v.index, floorMod(x, k))
	}
}

// countIn is countOf in the state st, which may lack hits that were undone.
func (v *view) countIn(st state, k, x int64) uint64 {
	n := v.countOf(k, x)
	if st.past < v.past && x == v.undone {
		n -= min(n, v.past-st.past)
	}
	return n
}

// ringCount returns a count of a ring.
func (s *sizeClass) ringCount(index uint64, slot int64) uint64 {
	pause(beforeCellLoad)
	return s.cell(index, uint64(slot>>1)).Load() >> (slot & 1 * 32) & math.MaxUint32 //nolint:gosec // not negative
}

// setRingCount writes a count of a ring whose cells are locked.
func (s *sizeClass) setRingCount(index uint64, slot int64, n uint64) {
	c, shift := s.cell(index, uint64(slot>>1)), slot&1*32 //nolint:gosec // not negative
	c.Store(c.Load()&^(math.MaxUint32<<shift) | n<<shift)
}
