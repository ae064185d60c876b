package limiter

import "time"

// A fixed window's word, from the high bits to the low:
//
//	30 bits  end of the window, Unix seconds mod 2^30
//	 1 bit   life: flips when the slot changes hands
//	33 bits  hits used in the window, saturating
//
// The end says by itself whether the word has expired, whatever the window's
// length is, and a count may exceed the greatest limit, 2^32-1. Seconds are
// compared modulo 2^30, 34 years: an end up to liveSpan ahead of now (a window of
// ten years, seen by who is a year late) is one that is to come, any other has
// passed. So a word must not lie untouched for 23 years.
const (
	countBits = 33
	lifeBits  = 1
	endShift  = countBits + lifeBits
	countMask = 1<<countBits - 1
	lifeMask  = (1<<lifeBits - 1) << countBits
	endMask   = 1<<(64-endShift) - 1
	maxLate   = 365 * 24 * 3600
	liveSpan  = uint64(MaxWindow/time.Second) + maxLate

	// maxCount leaves out the count whose word could be dead.
	maxCount = countMask - 1
	// dead is the word of a slot that is changing hands. Those who meet it wait
	// for the lock of the bucket's stripe.
	dead = ^uint64(0)
)

// windowWord returns the word of a window that ends at the Unix second end.
func windowWord(end int64, life, used uint64) uint64 {
	return uint64(end)<<endShift | life&lifeMask | used //nolint:gosec // the low bits of end are wanted
}

// nextLife returns the life that follows the one of word.
func nextLife(word uint64) uint64 {
	return (word + 1<<countBits) & lifeMask
}

// windowLeft returns how many seconds after sec the window of word ends, and
// whether it does at all: false if it ended at sec or before.
func windowLeft(word uint64, sec int64) (int64, bool) {
	left := (word>>endShift - uint64(sec)) & endMask //nolint:gosec // modulo 2^30
	return int64(left), left != 0 && left <= liveSpan
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
