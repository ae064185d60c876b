package store

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A balance is the unused hits of a window or a sub-window, or of one block of a bucket.
type balance struct {
	timed bool                       // it is of one block, without a period
	word  atomic.Uint64              // number of changes of end, modulo 2^32, and unused hits in the low half
	end   atomic.Int64               // of the window or sub-window, or of the block, by the store's clock
	until atomic.Int64               // the same by the monotonic clock
	half  atomic.Uint64              // the next block is acquired at this number of hits
	renew atomic.Int64               // or from this monotonic time on, if it is of one block
	state atomic.Pointer[blockState] // after the last block was charged

	granted uint64       // unused hits after the last block was added, without returned ones; protected by mu
	merged  atomic.Int64 // end of the window that was merged into the mirror; written with mu locked

	// Used by sweep.
	seen    uint64
	seenAt  time.Duration
	trimmed limiter.Time // end of the sub-window whose last hits were returned
}

// A blockState is the state of a counter in the store after a block was charged, and the connection on
// which it was.
type blockState struct {
	limiter.State

	conn *redis.Conn
}

const (
	hitsMask = math.MaxUint32
	oneEnd   = hitsMask + 1
)

// usable reports whether hits may be used at the time at, in the period that ends at end.
func (w *balance) usable(at, end limiter.Time, elapsed time.Duration) bool {
	own := limiter.Time(w.end.Load())
	if int64(elapsed) >= w.until.Load() {
		return false
	}
	return own == end || w.timed && at < own
}

// spend takes hits off w. It returns the word after that, and stores in state the state of the
// counter when the last block was charged.
func (w *balance) spend(hits uint64, at, end limiter.Time, elapsed time.Duration, state *limiter.State) (word uint64, ok bool) {
	for {
		word := w.word.Load()
		if word&hitsMask < hits || !w.usable(at, end, elapsed) {
			return 0, false
		}
		found := w.state.Load() // with these hits, or with newer ones
		if w.word.CompareAndSwap(word, word-hits) {
			copyState(state, &found.State)
			return word - hits, true
		}
	}
}

// giveBack gives back hits that spend took, unless they have ended. word is the result of spend.
func (w *balance) giveBack(word, hits uint64) {
	for {
		now := w.word.Load()
		if now/oneEnd != word/oneEnd || w.word.CompareAndSwap(now, now+hits) {
			return
		}
	}
}

// clear takes all hits, and returns their number.
func (w *balance) clear() uint64 {
	for {
		word := w.word.Load()
		if w.word.CompareAndSwap(word, word&^hitsMask+oneEnd) {
			return word & hitsMask
		}
	}
}

// unused returns the number of unused hits.
func (w *balance) unused() uint64 { return w.word.Load() & hitsMask }

// unused returns the number of unused hits of both balances.
func (h *hotCounter) unused() uint64 { return h.balances[0].unused() + h.balances[1].unused() }

// balanceWith returns the balance that ends first among those that have the given hits, or nil.
func (h *hotCounter) balanceWith(hits uint64, at, end limiter.Time, elapsed time.Duration) (found *balance) {
	for i := range h.balances {
		w := &h.balances[i]
		if w.unused() >= hits && w.usable(at, end, elapsed) && (found == nil || w.end.Load() < found.end.Load()) {
			found = w
		}
	}
	return found
}

// isNext reports whether w is used after the other balance, which has hits.
func (h *hotCounter) isNext(w *balance) bool {
	other := &h.balances[0]
	if w == other {
		other = &h.balances[1]
	}
	return other.unused() > 0 && other.end.Load() < w.end.Load()
}

// balanceOf returns the balance of a window or sub-window, or nil.
func (h *hotCounter) balanceOf(end limiter.Time) *balance {
	for i := range h.balances {
		if w := &h.balances[i]; !w.timed && limiter.Time(w.end.Load()) == end {
			return w
		}
	}
	return nil
}

// runsOut reports whether the next block is to be acquired when w has the given unused hits.
func (w *balance) runsOut(unused uint64, elapsed time.Duration) bool {
	return unused <= w.half.Load() || w.timed && int64(elapsed) >= w.renew.Load()
}

// needsBlock reports whether the usable hits run out.
func (h *hotCounter) needsBlock(at, end limiter.Time, elapsed time.Duration) bool {
	var newest *balance
	unused := uint64(0)
	for i := range h.balances {
		w := &h.balances[i]
		if !w.timed && limiter.Time(w.end.Load()) == end && int64(elapsed) >= w.until.Load() {
			return false // the window is over
		}
		if w.usable(at, end, elapsed) {
			unused += w.unused()
			if newest == nil || newest.end.Load() < w.end.Load() {
				newest = w
			}
		}
	}
	return newest == nil || newest.runsOut(unused, elapsed)
}

// willBeUsed returns how many of the usable hits are used before they end, at a rate of hits per
// nanosecond.
func (h *hotCounter) willBeUsed(rate float64, at, end limiter.Time, elapsed time.Duration) (hits float64) {
	for i := range h.balances {
		if w := &h.balances[i]; w.usable(at, end, elapsed) {
			n := float64(w.unused())
			if w.timed {
				n = min(n, rate*float64(w.until.Load()-int64(elapsed)))
			}
			hits += n
		}
	}
	return hits
}

// add adds the hits of a block, which are in h.left, to a balance. They were charged at the time at,
// and end at end, and at the time until by the monotonic clock.
func (h *hotCounter) add(hits uint64, at, end limiter.Time, until time.Duration) {
	w := h.balanceOf(end)
	if w == nil {
		w = &h.balances[0]
		if other := &h.balances[1]; h.isNext(w) || w.unused() > 0 && other.unused() == 0 {
			w = other
		}
		h.mu.Lock()
		left := w.clear() // of a window that is over, or a clock was set; or the block has not ended
		w.granted = 0
		h.mu.Unlock()
		h.blocks.count(blockLost, left)
		w.end.Store(int64(end))
		w.until.Store(int64(until))
		lead := min(2*time.Duration(h.blocks.trip.Load()), time.Duration(end-at)/2)
		w.renew.Store(int64(until - lead))
	}
	state := &blockState{conn: h.conn}
	copyState(&state.State, &h.left)
	w.state.Store(state)
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		word := w.word.Load()
		w.half.Store((word&hitsMask + hits) / 2)
		w.granted = word&hitsMask + hits
		if w.word.CompareAndSwap(word, word+hits) {
			return
		}
	}
}
