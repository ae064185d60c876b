package store

import (
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// An offsetRange is the range of possible offsets of the store's clock to this machine's, in
// nanoseconds. A reply has the store's time at some moment of its round trip, so it limits the
// offset to a range as long as the round trip. The estimate is the middle of the intersection of
// all ranges. So a late reply, which alone could be wrong by half its round trip, does not move the
// estimate.
type offsetRange struct {
	mu        sync.Mutex
	low, high int64
	sent      time.Time // start of the newest round trip, zero before the first
}

const (
	// driftParts bounds the drift between two clocks: 1/2000 of the elapsed time, 500 µs a second,
	// which is five times that of bad clocks.
	driftParts = 2000
	// resolution is that of the store's clock.
	resolution = int64(time.Microsecond)
)

// add narrows r by a reply with the store's time now, in a round trip that began at sent, and
// returns the middle of r. If the ranges do not intersect, one of the clocks was set, and r starts
// again from this reply.
func (r *offsetRange) add(now limiter.Time, sent time.Time, trip time.Duration) int64 {
	high := int64(now) - sent.UnixNano()
	low := high - int64(max(trip, 0))
	high += resolution
	r.mu.Lock()
	defer r.mu.Unlock()
	drift := int64(sent.Sub(r.sent).Abs()) / driftParts
	commonLow, commonHigh := max(low, r.low-drift), min(high, r.high+drift)
	if r.sent.IsZero() || commonLow > commonHigh {
		commonLow, commonHigh = low, high
	}
	r.low, r.high = commonLow, commonHigh
	if sent.After(r.sent) {
		r.sent = sent
	}
	return commonLow + (commonHigh-commonLow)/2
}
