package store

import (
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// An offsetRange is the range of possible offsets of the store's clock to this machine's steady
// clock, in nanoseconds. A reply has the store's time at some moment of its round trip, so it limits
// the offset to a range as long as the round trip. The estimate is in the intersection of all
// ranges: the store's clock equals this machine's if that is possible, otherwise the estimate is the
// middle. So a late reply, which alone could be wrong by half its round trip, does not move the
// estimate, and neither does a step of this machine's clock.
type offsetRange struct {
	mu        sync.Mutex
	replies   int // in the range, at most enoughReplies; 0 if the range is unknown
	low, high int64
	sent      time.Duration // start of the newest round trip
}

const (
	// driftParts bounds the drift between two clocks: 1/2000 of the elapsed time, 500 µs a second,
	// which is five times that of bad clocks.
	driftParts = 2000
	// resolution is that of the store's clock.
	resolution = int64(time.Microsecond)
	// The store is used after enoughReplies, or earlier if the range is at most maxVagueness.
	enoughReplies = 4
	maxVagueness  = 50 * time.Millisecond
)

// add narrows r by a reply with the store's time now, in a round trip that began at sent by the
// steady clock, and returns the estimate. wall is the offset of this machine's clock. If the ranges
// do not intersect, the store's clock was set, and r starts again from this reply.
func (r *offsetRange) add(now limiter.Time, sent, trip, wall time.Duration) int64 {
	high := int64(now) - int64(sent)
	low := high - int64(max(trip, 0))
	high += resolution
	r.mu.Lock()
	defer r.mu.Unlock()
	drift := int64((sent - r.sent).Abs()) / driftParts
	commonLow := max(low, r.low-drift)
	commonHigh := min(high, r.high+drift)
	if r.replies == 0 || commonLow > commonHigh {
		r.replies = 0
		commonLow = low
		commonHigh = high
	}
	r.low = commonLow
	r.high = commonHigh
	if r.replies == 0 || sent > r.sent {
		r.sent = sent
	}
	r.replies = min(r.replies+1, enoughReplies)
	if equal := int64(wall); commonLow <= equal && equal <= commonHigh {
		return equal
	}
	return commonLow + (commonHigh-commonLow)/2
}

// isVague reports whether the offset is not yet known well enough.
func (r *offsetRange) isVague() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replies > 0 && r.replies < enoughReplies && r.high-r.low > int64(maxVagueness)
}
