package limiter

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// A sliding log keeps the time of every hit that counts, its stamp, oldest first, in a
// ring of cells. The payload of its word is where the next one goes and how many there
// are; the note says when a hit at the time of the last write would cease to count. A hit
// that comes late counts at that time: the stamps stay sorted, and hits that ceased to count
// before the write, which forgot them, do not leave room for it.
const (
	logCountBits = 13
	logCountMask = 1<<logCountBits - 1
)

// slidingLog is the algorithm of [SlidingLog].
type slidingLog struct{ withCells }

func (slidingLog) validate(p *Policy) error {
	if p.Limit > MaxLog {
		return fmt.Errorf("log of %d hits: must be at most %d", p.Limit, MaxLog)
	}
	return nil
}

// cells is one at least, for a note.
func (slidingLog) cells(p *Policy) int { return int(max(1, logLimit(p))) } //nolint:gosec // at most MaxLog

func (slidingLog) resizes() bool { return true }

func (slidingLog) fresh(_, from Time, _ *Policy) state { return state{num: from.stamp()} }

func (slidingLog) load(v *view, at Time, p *Policy) bool {
	now := at.stamp()
	v.state, v.head, v.newer = state{num: now}, math.MinInt64, 0
	count, window := min(v.word&logCountMask, v.class.stride()), p.window()
	pause(beforeCellLoad)
	written := v.class.note(v.index).end.Load() - window
	if !begunAhead(written, now) {
		v.num = max(now, written)
		v.past = v.log().countAfter(min(count, logLimit(p)), v.num-window)
	}
	return v.slot.word.Load() == v.word
}

func (a slidingLog) decide(v *view, at Time, c *Charge, hits uint64, _ time.Duration, st state, d *Decision) (after state, ok bool) {
	return decideCount(a, logLimit(c.Policy), v, at, c, hits, st, d)
}

// refund takes back the newest hits.
func (slidingLog) refund(st state, hits uint64) (after state, gave uint64) {
	gave = min(hits, st.used+st.past)
	own := min(gave, st.used)
	st.used, st.past = st.used-own, st.past-(gave-own)
	return st, gave
}

// force keeps the newest hits in place of as many older ones.
func (slidingLog) force(limit uint64, st state, hits uint64) (after state, grown uint64) {
	before := st.used + st.past
	st.used = min(st.used+min(hits, limit), limit)
	st.past = min(st.past, limit-st.used)
	return st, st.used + st.past - before
}

func (slidingLog) retryAfter(v *view, at Time, p *Policy, limit uint64, st state, hits uint64) (time.Duration, bool) {
	stamp := st.num
	if need := st.past + st.used + hits - limit; need <= st.past {
		stamp = v.stampAt(st.past - need + 1)
	}
	return time.Duration(max(1, stamp+p.window()-at.stamp())), v.slot == nil || v.slot.word.Load() == v.word
}

func (slidingLog) finish(v *view, at Time, p *Policy, _ time.Duration, st state, d *Decision) {
	if d.finishOver(p) {
		return
	}
	d.Remaining, d.Reset = remaining(logLimit(p), st), 1
	stamp := st.num
	if st.used == 0 {
		if st.past == 0 {
			return
		}
		stamp = v.stampAt(v.nthRemaining(1, st))
	}
	d.Reset = time.Duration(max(1, stamp+p.window()-at.stamp()))
}

// undo takes out hits of that time, wherever they are.
func (slidingLog) undo(v *view, _, _ Time, _ *Policy, mark int64, d *Decision) (after state, lost bool) {
	if v.class == &externalClass { // the batch's own hits are in no cells
		after = v.state
		after.used -= min(after.used, d.Charged)
		return after, false
	}
	l, after := v.log(), v.state
	v.newer = 0
	for v.newer < v.past && l.at(v.newer+1) > mark {
		v.newer++
	}
	for n := v.newer; n < v.past && n-v.newer < d.Charged && l.at(n+1) == mark; n++ {
		after.past--
	}
	return after, false
}

// store writes what counts to the slot. If it is not v's own, what still counts moves
// there.
func (slidingLog) store(v *view, s *sizeClass, index uint64, p *Policy, after state) uint64 {
	s.loadCells(index)
	to := log{cells: s.cellsOf(index)}
	switch {
	case v.slot == nil:
	case s != v.class:
		from := v.log()
		for i := range after.past {
			to.next = to.push(from.lockedStamp(v.nthRemaining(after.past-i, after)))
		}
	default:
		to.next = v.log().next
		if gone := v.past - after.past; after.used == 0 && gone > 0 {
			for i := v.newer; i > 0; i-- {
				to.cell(i + gone).Store(to.cell(i).Load())
			}
			to.next = to.cellIndex(gone)
		}
	}
	for range after.used {
		to.next = to.push(after.num)
	}
	s.note(index).end.Store(after.num + p.window())
	return logPayload(to.next, after.past+after.used)
}

func (slidingLog) weight(_ *sizeClass, _, word uint64) uint64 { return word & logCountMask }

func (slidingLog) importState(v *view, at Time, p *Policy) {
	now, newest := at.stamp(), v.reported.Time.stamp()
	v.state, v.head, v.newer = state{num: now}, math.MinInt64, 0
	if v.reported.Hits > 0 && !begunAhead(newest, now) {
		v.num, v.past = max(now, newest), min(v.reported.Hits, logLimit(p))
	}
}

// stampAt is view.stampAt for what a store told.
func (s *State) stampAt(nth uint64) int64 {
	if nth == 1 {
		return s.Time.stamp()
	}
	return s.Stamp.stamp()
}

func (slidingLog) export(v *view, _ Time, _ *Policy, st state, s *State) {
	if s.Hits = st.used + st.past; s.Hits == 0 {
		return
	}
	if s.Time = Time(st.num); st.used == 0 {
		s.Time = Time(v.stampAt(v.nthRemaining(1, st)))
	}
}

// adopt adds what the charge put into the log: a store does not tell the time of each hit.
func (a slidingLog) merge(v, _ *view, _ Time, b *Batch, i int) (after state, ok bool) {
	c, d := &b.Charges[i], &b.Decisions[i]
	after, _ = a.force(logLimit(c.Policy), v.state, d.Charged)
	return after, !c.Refund && d.Charged > 0
}

// logLimit is p.Limit, cut to what a log can hold.
func logLimit(p *Policy) uint64 { return uint64(min(p.Limit, MaxLog)) }

// logPayload returns the payload of a log with so many stamps up to next.
func logPayload(next, count uint64) uint64 { return next<<logCountBits | count }

// nthRemaining returns which of v's hits, counted from the newest, is the nth in the state
// after, that lacks some below the newer ones or, but for these, the newest.
func (v *view) nthRemaining(nth uint64, after state) uint64 {
	if nth > v.newer && after.used == 0 {
		return nth + v.past - after.past
	}
	return nth
}

// A log is the cells of a counter as its word has them. The nth newest stamp is n
// back from the cell where the next one goes.
type log struct {
	cells []atomic.Uint64
	next  uint64
}

// log returns what the word of a slot makes of its cells. A reader whose slot changes
// hands, twice, may have a word that is no log's. It finds out afterwards, since the
// word is no longer the same, but must not be led out of the cells.
func (s *sizeClass) log(index, word uint64) log {
	l := log{cells: s.cellsOf(index), next: word & payloadMask >> logCountBits}
	if l.next >= uint64(len(l.cells)) {
		l.next = 0
	}
	return l
}

func (v *view) log() log { return v.class.log(v.index, v.word) }

// stampAt returns the time of the nth newest of v's hits that are in cells, of which a store
// told those that it was asked for.
func (v *view) stampAt(nth uint64) int64 {
	if v.class == &externalClass {
		return v.reported.stampAt(nth)
	}
	return v.log().at(nth)
}

// cellIndex returns the number of a cell.
func (l log) cellIndex(n uint64) uint64 {
	at, size := l.next-n, uint64(len(l.cells))
	if at >= size { // below 0, by at most size
		at += size
	}
	return at
}

func (l log) cell(back uint64) *atomic.Uint64 { return &l.cells[l.cellIndex(back)] }

// at returns a stamp, for readers that check afterwards that the word is still the same.
func (l log) at(back uint64) int64 {
	pause(beforeCellLoad)
	return l.lockedStamp(back)
}

// lockedStamp is at for a writer that holds the cells.
func (l log) lockedStamp(back uint64) int64 { return int64(l.cell(back).Load()) } //nolint:gosec // a time

// push writes a stamp to cells that are held, and returns where the next one goes.
func (l log) push(stamp int64) (next uint64) {
	l.cells[l.next].Store(uint64(stamp)) //nolint:gosec // a time
	if next = l.next + 1; next == uint64(len(l.cells)) {
		next = 0
	}
	return next
}

// countAfter returns how many of the newest most stamps are after then. Those that are
// not have ceased to count since the last hit, so are few as a rule, and are looked
// for from the oldest on in growing steps.
func (l log) countAfter(most uint64, then int64) uint64 {
	lo, hi := uint64(0), most+1 // lo newest are after then, and fewer than hi
	for step := uint64(1); step < hi; step *= 2 {
		if l.at(hi-step) > then {
			lo = hi - step
			break
		}
		hi -= step
	}
	for lo+1 < hi {
		if mid := (lo + hi) / 2; l.at(mid) > then {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
