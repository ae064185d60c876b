package limiter

import "time"

// A fixed window's word, from the high bits to the low:
//
//	 1 bit   life: flips when the slot changes hands
//	30 bits  end of the window, Unix seconds mod 2^30
//	33 bits  hits used in the window, saturating
//
// The end says by itself whether the word has expired, whatever the window's
// length is, and a count may exceed the greatest limit, 2^32-1. Seconds are
// compared modulo 2^30, 34 years: an end up to liveSpan ahead of now (a window of
// ten years, seen by who is a year late) is one that is to come, any other has
// passed. So a word must not lie untouched for 23 years.
const (
	windowShift = 33
	windowCount = 1<<windowShift - 1
	endMask     = 1<<30 - 1
	maxLate     = 365 * 24 * 3600
	liveSpan    = uint64(MaxWindow/time.Second) + maxLate

	// windowMost leaves out the count whose word could be dead.
	windowMost = windowCount - 1
)

// windowWord returns the word, without life, of a window that ends at the Unix
// second end.
func windowWord(end int64, used uint64) uint64 {
	return uint64(end)&endMask<<windowShift | used //nolint:gosec // the low bits of end are wanted
}

// windowLeft returns how many seconds after sec the window of word ends, and
// whether it does at all: if not, how many seconds it ended ago, negative.
func windowLeft(word uint64, sec int64) (int64, bool) {
	left := (word>>windowShift - uint64(sec)) & endMask //nolint:gosec // modulo 2^30
	if left != 0 && left <= liveSpan {
		return int64(left), true
	}
	return int64(left) - (endMask+1)*int64(min(left, 1)), false
}

// windowEnd returns the end of the window of p that holds the Unix second sec.
// Windows are aligned to the epoch, so weeks begin on Thursday.
func windowEnd(p *Policy, sec int64) int64 {
	length := max(1, int64(min(p.Window, MaxWindow)/time.Second))
	into := sec % length
	if into < 0 {
		into += length
	}
	return sec - into + length
}

// windowState returns the state of the word at the time at.
func windowState(word uint64, at instant, p *Policy) state {
	if left, live := windowLeft(word, at.sec); live {
		return state{used: word & windowCount, num: at.sec + left}
	}
	return state{num: windowEnd(p, at.sec)}
}
