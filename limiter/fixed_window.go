package limiter

import "time"

// The word of a fixed window, from the high bits to the low:
//
//	 1 bit   generation: flips when the slot changes its owner
//	30 bits  end of the window, Unix seconds mod 2^30
//	33 bits  hits in the window, saturating
//
// The end says whether the word has expired, regardless of the length of the window. The count can
// exceed the greatest limit, 2^32-1. Seconds are compared modulo 2^30, 34 years: an end up to
// liveSpan ahead of now (a window of ten years that begins in an hour) is in the future, any other
// has passed. A word must therefore not be left unused for 24 years.
const (
	windowShift = 33
	windowCount = 1<<windowShift - 1
	endMask     = 1<<30 - 1
	liveSpan    = int64(MaxWindow/time.Second) + maxAhead

	// MaxCount is the greatest number of hits that a fixed window counts. It exceeds the greatest
	// limit, and excludes the count of a word that could equal dead.
	MaxCount = windowCount - 1
)

// fixedWindow implements [FixedWindow].
type fixedWindow struct{ counting }

func (fixedWindow) cells(*Policy) int { return 0 }

func (fixedWindow) fresh(_, from Time, p *Policy) state { return state{mark: windowEnd(p, from)} }

func (fixedWindow) load(v *view, at Time, p *Policy) bool {
	left := secondsLeft(v.word, at)
	maxLeft := int64(p.Window) + maxAheadNanos
	nanos := left * int64(time.Second)
	live := uint64(nanos-1) < uint64(maxLeft)            //nolint:gosec // 0 < nanos <= maxLeft
	if p.Calendar != nil && nanos > maxLeft-maxLeft>>3 { // calendar windows differ in length by less than an eighth
		live = p.Calendar.isLive(left, at)
	}
	if live {
		v.state = state{used: v.word & windowCount, mark: at.seconds() + left}
	} else {
		v.state = state{mark: windowEnd(p, at)}
	}
	return true
}

func (a fixedWindow) decide(
	v *view, at Time, c *Charge, hits uint64, _ time.Duration, st state, d *Decision,
) (after state, ok bool) {
	return decideCount(a, uint64(c.Policy.Limit), v, at, c, hits, st, d)
}

func (fixedWindow) force(_ uint64, st state, hits uint64) (after state, grown uint64) {
	grown = min(hits, MaxCount-st.used)
	st.used += grown
	return st, grown
}

func (fixedWindow) retryAfter(_ *view, at Time, _ *Policy, _ uint64, st state, _ uint64) (time.Duration, bool) {
	return at.until(st.mark), true
}

// finish sets Reset to the end of the window for all decisions.
func (fixedWindow) finish(_ *view, at Time, p *Policy, _ time.Duration, st state, d *Decision) {
	d.Remaining = 0
	d.Reset = at.until(st.mark)
	if !d.Over {
		d.Remaining = remaining(uint64(p.Limit), st)
	}
}

func (fixedWindow) store(_ *view, _ *sizeClass, _ uint64, _ *Policy, after state) uint64 {
	return windowWord(after.mark, after.used)
}

func (fixedWindow) expiry(_ *sizeClass, _, word uint64, at Time) (end Time, live bool) {
	left, live := windowLeft(word, at)
	return Time((at.seconds() + left) * int64(time.Second)), live
}

func (fixedWindow) weight(_ *sizeClass, _, word uint64) uint64 { return word & windowCount }

// importState sets v to the reported window, even if it ended before at: the store may have decided
// shortly after its end.
func (fixedWindow) importState(v *view, at Time, p *Policy) {
	if v.reported.Time == 0 {
		v.state = state{mark: windowEnd(p, at)}
		return
	}
	v.state = state{used: min(v.reported.Hits, MaxCount), mark: v.reported.Time.seconds()}
}

func (fixedWindow) export(_ *view, _ Time, _ *Policy, st state, s *State) {
	s.Hits = st.used
	s.Time = Time(st.mark * int64(time.Second))
}

func (fixedWindow) merge(v, there *view, _ Time, _ *Batch, _ int) (after state, ok bool) {
	return there.state, v.mark <= there.mark
}

// windowWord returns the word, without generation, of a window that ends at the Unix second end.
func windowWord(end int64, used uint64) uint64 {
	return uint64(end)&endMask<<windowShift | used //nolint:gosec // the low bits of end are wanted
}

// windowLeft returns the seconds from at to the end of word's window, and whether the end is in the
// future. The seconds are negative if it is in the past.
func windowLeft(word uint64, at Time) (int64, bool) {
	left := secondsLeft(word, at)
	if left != 0 && left <= liveSpan {
		return left, true
	}
	return left - (endMask+1)*min(left, 1), false // unless it is 0, the end is in the past, modulo 2^30
}

// secondsLeft returns the seconds from at to the end of word's window, modulo 2^30.
func secondsLeft(word uint64, at Time) int64 {
	return int64((word>>windowShift - uint64(at.seconds())) & endMask) //nolint:gosec // modulo 2^30
}

// WindowStart returns the start of the [FixedWindow] that contains the time.
func (p *Policy) WindowStart(at Time) Time {
	if p.Calendar != nil {
		start, _ := p.Calendar.Window(at)
		return start
	}
	return p.WindowEnd(at) - Time(p.window())
}

// WindowEnd returns the end of the [FixedWindow] that contains the time.
func (p *Policy) WindowEnd(at Time) Time { return Time(windowEnd(p, at) * int64(time.Second)) }

// windowEnd returns the end of the window of p that contains the time, in Unix seconds. Windows are
// aligned to the epoch, so weeks begin on Thursday, unless p has a calendar.
func windowEnd(p *Policy, at Time) int64 {
	if p.Calendar != nil {
		return p.Calendar.windowEnd(at)
	}
	length := p.window() / int64(time.Second)
	return (floorDiv(at.seconds(), length) + 1) * length
}

// seconds returns the time in whole seconds, rounded down.
func (t Time) seconds() int64 { return floorDiv(int64(t), int64(time.Second)) }

// until returns the time from t to the Unix second end, at least 1 ns: a store may decide shortly
// after the end of the window that its caller selected.
func (t Time) until(end int64) time.Duration {
	return max(1, time.Duration(end*int64(time.Second)-int64(t))) // an overflow of the product is undone
}
