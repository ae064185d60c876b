package limiter

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A sliding log stores the time of every hit that counts, its stamp, in a ring of cells, oldest
// first. The payload of the word has the next cell and the number of hits; the note has the time at
// which a hit at the time of the last write ceases to count. A late hit is decided and recorded as
// if it came at the time of the last write: stamps stay sorted, and the last write has dropped the
// hits that had ceased to count by then.
const (
	logCountBits = 13
	logCountMask = 1<<logCountBits - 1
)

// slidingLog implements [SlidingLog].
type slidingLog struct{ withCells }

func (slidingLog) validate(p *Policy) error {
	if p.Limit > MaxLog {
		return fmt.Errorf("log of %d hits: must be at most %d", p.Limit, MaxLog)
	}
	return nil
}

// cells returns at least 1, so that the counter has a note.
func (slidingLog) cells(p *Policy) int { return int(max(1, logLimit(p))) } //nolint:gosec // at most MaxLog

func (slidingLog) resizes() bool { return true }

func (slidingLog) fresh(_, from Time, _ *Policy) state { return state{mark: from.stamp()} }

func (slidingLog) load(v *view, at Time, p *Policy) bool {
	now := at.stamp()
	v.state = state{mark: now}
	v.head = noHead
	v.newer = 0
	count := min(v.word&logCountMask, v.class.stride())
	window := p.window()
	pause(beforeCellLoad)
	written := v.class.noteAt(v.index).end.Load() - window
	if !begunAhead(written, now) {
		v.mark = max(now, written)
		v.past = v.log().countAfter(min(count, logLimit(p)), v.mark-window)
	}
	return v.slot.word.Load() == v.word
}

func (a slidingLog) decide(
	v *view, at Time, c *Charge, hits uint64, _ time.Duration, st state, d *Decision,
) (after state, ok bool) {
	return decideCount(a, logLimit(c.Policy), v, at, c, hits, st, d)
}

// refund removes the newest hits.
func (slidingLog) refund(st state, hits uint64) (after state, gave uint64) {
	gave = min(hits, st.used+st.past)
	own := min(gave, st.used)
	st.used -= own
	st.past -= (gave - own)
	return st, gave
}

// force adds the hits in place of the same number of older ones if the log is full.
func (slidingLog) force(limit uint64, st state, hits uint64) (after state, grown uint64) {
	before := st.used + st.past
	st.used = min(st.used+min(hits, limit), limit)
	st.past = min(st.past, limit-st.used)
	return st, st.used + st.past - before
}

func (slidingLog) retryAfter(v *view, at Time, p *Policy, limit uint64, st state, hits uint64) (time.Duration, bool) {
	stamp := st.mark
	if need := st.past + st.used + hits - limit; need <= st.past {
		stamp = v.stampAt(st.past - need + 1)
	}
	return time.Duration(max(1, stamp+p.window()-at.stamp())), v.slot == nil || v.slot.word.Load() == v.word
}

func (slidingLog) finish(v *view, at Time, p *Policy, _ time.Duration, st state, d *Decision) {
	if d.finishOver(p) {
		return
	}
	d.Remaining = remaining(logLimit(p), st)
	d.Reset = 1
	stamp := st.mark
	if st.used == 0 {
		if st.past == 0 {
			return
		}
		stamp = v.stampAt(v.nthRemaining(1, st))
	}
	d.Reset = time.Duration(max(1, stamp+p.window()-at.stamp()))
}

// undo removes hits with the stamp mark, wherever they are in the log.
func (slidingLog) undo(v *view, _, _ Time, _ *Policy, mark int64, d *Decision) (after state, lost bool) {
	if v.class == &externalClass { // hits of the batch are not in cells
		after = v.state
		after.used -= min(after.used, d.Charged)
		return after, false
	}
	l := v.log()
	after = v.state
	v.newer = 0
	for v.newer < v.past && l.at(v.newer+1) > mark {
		v.newer++
	}
	for n := v.newer; n < v.past && n-v.newer < d.Charged && l.at(n+1) == mark; n++ {
		after.past--
	}
	return after, false
}

// store writes the hits that count to the slot. If it is not v's own slot, earlier hits that still
// count are copied.
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
		to.next = to.push(after.mark)
	}
	s.noteAt(index).end.Store(after.mark + p.window())
	return logPayload(to.next, after.past+after.used)
}

func (slidingLog) weight(_ *sizeClass, _, word uint64) uint64 { return word & logCountMask }

func (slidingLog) importState(v *view, at Time, p *Policy) {
	now := at.stamp()
	newest := v.reported.Time.stamp()
	v.state = state{mark: now}
	v.head = noHead
	v.newer = 0
	if v.reported.Hits > 0 && !begunAhead(newest, now) {
		v.mark = max(now, newest)
		v.past = min(v.reported.Hits, logLimit(p))
	}
}

// stampAt is view.stampAt for a reported log.
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
	s.Time = Time(st.mark)
	if st.used == 0 {
		s.Time = Time(v.stampAt(v.nthRemaining(1, st)))
	}
}

// merge adds the hits of the charge: a store does not report the time of each hit.
func (a slidingLog) merge(v, _ *view, _ Time, b *Batch, i int) (after state, ok bool) {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	after, _ = a.force(logLimit(c.Policy), v.state, d.Charged)
	return after, !c.Refund && d.Charged > 0
}

// logLimit returns p.Limit, capped at the capacity of a log.
func logLimit(p *Policy) uint64 { return uint64(min(p.Limit, MaxLog)) }

// logPayload returns the payload of a log with count stamps before the cell next.
func logPayload(next, count uint64) uint64 { return next<<logCountBits | count }

// nthRemaining returns the index in v of the nth hit that remains in the state after; both count
// from the newest. The removed hits follow the v.newer newest ones.
func (v *view) nthRemaining(nth uint64, after state) uint64 {
	if nth > v.newer && after.used == 0 {
		return nth + v.past - after.past
	}
	return nth
}

// A log is the decoded word of a sliding log and its cells. The nth newest stamp is n cells before
// next.
type log struct {
	cells []atomic.Uint64
	next  uint64
}

// log returns the log of a slot. The word may not belong to a log if the slot changed its owner
// meanwhile. A reader detects that afterwards, but next must not be out of range.
func (s *sizeClass) log(index, word uint64) log {
	l := log{cells: s.cellsOf(index), next: word & payloadMask >> logCountBits}
	if l.next >= uint64(len(l.cells)) {
		l.next = 0
	}
	return l
}

func (v *view) log() log { return v.class.log(v.index, v.word) }

// stampAt returns the time of the nth newest hit in cells. A store reports only those that were
// requested.
func (v *view) stampAt(nth uint64) int64 {
	if v.class == &externalClass {
		return v.reported.stampAt(nth)
	}
	return v.log().at(nth)
}

// cellIndex returns the index of the cell n before next.
func (l log) cellIndex(n uint64) uint64 {
	at := l.next - n
	size := uint64(len(l.cells))
	if at >= size { // negative, by at most size
		at += size
	}
	return at
}

func (l log) cell(back uint64) *atomic.Uint64 { return &l.cells[l.cellIndex(back)] }

// at returns a stamp. The caller must check afterwards that the word is unchanged.
func (l log) at(back uint64) int64 {
	pause(beforeCellLoad)
	return l.lockedStamp(back)
}

// lockedStamp is at for a caller that holds the lock of the cells.
func (l log) lockedStamp(back uint64) int64 { return int64(l.cell(back).Load()) } //nolint:gosec // a time

// push writes a stamp to locked cells and returns the following cell.
func (l log) push(stamp int64) (next uint64) {
	l.cells[l.next].Store(uint64(stamp)) //nolint:gosec // a time
	if next = l.next + 1; next == uint64(len(l.cells)) {
		next = 0
	}
	return next
}

// countAfter returns how many of the n newest stamps are after cutoff. The others ceased to count
// since the last hit and are usually few, so the search starts at the oldest stamp with growing
// steps.
func (l log) countAfter(n uint64, cutoff int64) uint64 {
	lo := uint64(0)
	hi := n + 1 // invariant: lo <= result < hi
	for step := uint64(1); step < hi; step *= 2 {
		if l.at(hi-step) > cutoff {
			lo = hi - step
			break
		}
		hi -= step
	}
	for lo+1 < hi {
		if mid := (lo + hi) / 2; l.at(mid) > cutoff {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
