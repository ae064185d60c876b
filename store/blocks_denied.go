package store

import (
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// deniedHits are the hits that this replica denied in a fixed window.
type deniedHits struct {
	end   atomic.Int64 // of the window
	hits  atomic.Uint64
	least atomic.Uint64 // hits of the smallest request
}

// countDenied records denied hits of the window that ends at end. Those of two windows are kept.
func (h *hotCounter) countDenied(end limiter.Time, hits uint64) {
	if h.policy.Algorithm != limiter.FixedWindow { // others have no end
		return
	}
	w := &h.deniedIn[0]
	if other := &h.deniedIn[1]; w.end.Load() != int64(end) && (other.end.Load() == int64(end) || other.end.Load() < w.end.Load()) {
		w = other
	}
	if old := w.end.Load(); old != int64(end) && w.end.CompareAndSwap(old, int64(end)) {
		w.hits.Store(0)
		w.least.Store(hits)
	}
	if hits < w.least.Load() {
		w.least.Store(hits)
	}
	w.hits.Add(hits)
}

// checkDenied reads the counts of windows that have ended, if hits were denied in them. If a count is
// below the limit, other replicas have returned unused hits, which could have been admitted.
func (h *hotCounter) checkDenied(now, at limiter.Time) {
	const inFlight = 100 * time.Millisecond // requests of the window are decided then
	for i := range h.deniedIn {
		w := &h.deniedIn[i]
		end := limiter.Time(w.end.Load())
		if w.hits.Load() == 0 || at < end+limiter.Time(inFlight) {
			continue
		}
		if hits := w.hits.Swap(0); at < end+limiter.Time(time.Second) { // its key has not expired
			c := &deniedCheck{hot: h, hits: hits, least: w.least.Load()}
			c.batch.Partition = h.partition
			c.batch.Charges = append(c.batch.Charges, h.chargeOf(0, false))
			h.blocks.server.readEnded(c, now, end)
		}
	}
}

// A deniedCheck is a look-up of the count of a window that has ended.
type deniedCheck struct {
	hot   *hotCounter
	hits  uint64 // denied in the window
	least uint64 // those of the smallest request
	batch limiter.Batch
}

// read counts the denied hits for which the window had room.
func (c *deniedCheck) read() {
	limit := uint64(c.hot.policy.Limit)
	if room := limit - min(limit, c.batch.Decisions[0].Before); room >= c.least {
		c.hot.blocks.count(blockDenied, min(c.hits, room))
	}
}
