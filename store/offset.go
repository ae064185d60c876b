package store

import (
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// An offsetRange is where the offset of the store's clock to this machine's can be, in nanoseconds. A reply tells the store's time
// at some moment of its round trip, so the offset is in a range as long as the trip, and the best estimate is the middle of what
// the ranges of all replies have in common. So a late reply, which by itself would be wrong by half its trip, moves nothing.
type offsetRange struct {
	mu        sync.Mutex
	low, high int64
	sent      time.Time // of the newest trip, zero before the first
}

const (
	// driftParts is the part of the elapsed time by which two clocks drift apart at most: 500 µs a second, which is five times
	// what bad ones do.
	driftParts = 2000
	// resolution is that of the store's clock.
	resolution = int64(time.Microsecond)
)

// add narrows r by a reply of the store's time now, on a trip that began at sent, and returns the middle of r. If they have
// nothing in common, one of the clocks was set, and r starts again from this reply.
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
