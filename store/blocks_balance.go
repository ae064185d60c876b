package store

import (
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A moment is the present by the three clocks that blocks depend on.
type moment struct {
	local   limiter.Time  // by this machine's clock
	store   limiter.Time  // by the store's clock, as all other times of blocks
	elapsed time.Duration // by this machine's monotonic clock
}

func (bl *blocks) moment(local limiter.Time) moment {
	return moment{local, bl.store.main.time(local), bl.elapsed()}
}

// A balance is charged hits that are unused, and when they may be used: from start to end by the store's
// clock, and before until by the monotonic clock.
type balance struct {
	word  atomic.Uint64 // number of changes of the period, modulo 2^32, and unused hits in the low half
	start atomic.Int64
	end   atomic.Int64
	until atomic.Int64
	half  atomic.Uint64              // the next block is acquired at this number of hits
	renew atomic.Int64               // or from this monotonic time on
	state atomic.Pointer[blockState] // after the last block was charged

	granted uint64 // unused hits after the last block was added, without returned ones; protected by mu
}

// A window is the balance of a window or sub-window. Several blocks are added to it, and unused hits are
// returned.
type window struct {
	balance

	merged atomic.Int64 // end of the window that was merged into the mirror; written with mu locked

	// Used by sweep.
	seen    uint64
	seenAt  time.Duration
	trimmed limiter.Time // end of the sub-window whose last hits were returned
}

// A timedBlock is the balance of one block of a bucket, which lasts for hotCounter.life. Hits that are
// unused then are lost.
type timedBlock struct{ balance }

// A blockState is the state of a counter in the store after a block was charged, and the connection on
// which it was.
type blockState struct {
	limiter.State

	conn *redis.Conn
}

func (b *balance) period() period {
	return period{limiter.Time(b.start.Load()), limiter.Time(b.end.Load())}
}

// usable reports whether hits may be used.
func (b *balance) usable(m moment) bool {
	if int64(m.elapsed) >= b.until.Load() {
		return false
	}
	return b.period().contains(m.store)
}

// spend takes hits off b. It returns the word after that, and stores in state the state of the
// counter when the last block was charged.
func (b *balance) spend(hits uint64, m moment, state *limiter.State) (word uint64, ok bool) {
	for {
		word := b.word.Load()
		if word&hitsMask < hits || !b.usable(m) {
			return 0, false
		}
		found := b.state.Load() // with these hits, or with newer ones
		if b.word.CompareAndSwap(word, word-hits) {
			copyState(state, &found.State)
			return word - hits, true
		}
	}
}

// giveBack gives back hits that spend took, unless they have ended. word is the result of spend.
func (b *balance) giveBack(word, hits uint64) {
	for {
		now := b.word.Load()
		if now/oneEnd != word/oneEnd || b.word.CompareAndSwap(now, now+hits) {
			return
		}
	}
}

// clear takes all hits, and returns their number.
func (b *balance) clear() uint64 {
	for {
		word := b.word.Load()
		if b.word.CompareAndSwap(word, word&^hitsMask+oneEnd) {
			return word & hitsMask
		}
	}
}

// unused returns the number of unused hits.
func (b *balance) unused() uint64 { return b.word.Load() & hitsMask }

// unused returns the number of unused hits of both balances.
func (h *hotCounter) unused() uint64 { return h.balances[0].unused() + h.balances[1].unused() }

// usable returns the number of usable unused hits.
func (h *hotCounter) usable(m moment) (hits uint64) {
	for _, b := range h.balances {
		if b.usable(m) {
			hits += b.unused()
		}
	}
	return hits
}

// balanceWith returns the balance that ends first among those that have the given hits, or nil.
func (h *hotCounter) balanceWith(hits uint64, m moment) (found *balance) {
	for _, b := range h.balances {
		if b.unused() >= hits && b.usable(m) && (found == nil || b.end.Load() < found.end.Load()) {
			found = b
		}
	}
	return found
}

// oldest returns the balance that the next block replaces: the one that ends first. A block of a bucket
// with hits stays if the other one has none.
func (h *hotCounter) oldest() *balance {
	first := h.balances[0]
	last := h.balances[1]
	if last.end.Load() < first.end.Load() {
		first, last = last, first
	}
	if isBucket(&h.policy) && first.unused() > 0 && last.unused() == 0 {
		return last
	}
	return first
}

// windowOf returns the window or sub-window that ends at end, or nil.
func (h *hotCounter) windowOf(end limiter.Time) *window {
	for i := range h.windows {
		if w := &h.windows[i]; limiter.Time(w.end.Load()) == end {
			return w
		}
	}
	return nil
}

// runsOut reports whether the next block is to be acquired when b has the given unused hits.
func (b *balance) runsOut(unused uint64, elapsed time.Duration) bool {
	return unused <= b.half.Load() || int64(elapsed) >= b.renew.Load()
}

// needsBlock reports whether the usable hits of a period run out.
func (h *hotCounter) needsBlock(m moment, p period) bool {
	if w := h.windowOf(p.end); w != nil && int64(m.elapsed) >= w.until.Load() {
		return false // the window is over
	}
	var newest *balance
	for _, b := range h.balances {
		if b.usable(m) && (newest == nil || newest.end.Load() < b.end.Load()) {
			newest = b
		}
	}
	return newest == nil || newest.runsOut(h.usable(m), m.elapsed)
}

// willBeUsed returns how many of the usable hits are used before they end, at a rate of hits per
// nanosecond.
func (h *hotCounter) willBeUsed(rate float64, m moment) (hits float64) {
	for _, b := range h.balances {
		if b.usable(m) {
			n := float64(b.unused())
			if isBucket(&h.policy) {
				n = min(n, rate*float64(b.until.Load()-int64(m.elapsed)))
			}
			hits += n
		}
	}
	return hits
}

// add adds the hits of a block, which are in h.left, to a balance. They may be used in the period p, and
// before until by the monotonic clock.
func (h *hotCounter) add(hits uint64, p period, until time.Duration) {
	b := h.oldest()
	if w := h.windowOf(p.end); w != nil {
		b = &w.balance
	} else {
		h.drop(b) // a window that is over, or a clock was set; or the block has not ended
		b.start.Store(int64(p.start))
		b.end.Store(int64(p.end))
		b.until.Store(int64(until))
		if isBucket(&h.policy) {
			until -= min(2*time.Duration(h.blocks.trip.Load()), h.life/2)
		}
		b.renew.Store(int64(until))
	}
	state := &blockState{conn: h.conn}
	copyState(&state.State, &h.left)
	b.state.Store(state)
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		word := b.word.Load()
		b.half.Store((word&hitsMask + hits) / 2)
		b.granted = word&hitsMask + hits
		if b.word.CompareAndSwap(word, word+hits) {
			return
		}
	}
}

// take takes all unused hits off a balance, and returns their number.
func (h *hotCounter) take(b *balance) (unused uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	unused = b.clear()
	b.granted -= min(b.granted, unused)
	return unused
}

// drop ends a balance, whose unused hits are lost. It returns the hits that were used since the last
// block was added.
func (h *hotCounter) drop(b *balance) (used uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	unused := b.clear()
	h.blocks.count(blockLost, unused)
	used = b.granted - min(b.granted, unused)
	b.granted = 0
	return used
}
