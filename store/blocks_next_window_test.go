package store

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// The next window has a block before it begins, whatever the demand at the end of this one.
func TestNextWindowHasABlock(t *testing.T) {
	for _, rate := range []int{500, 2000, 5000, 10_000} {
		t.Run(strconv.Itoa(rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBlockWorld(t, 1, 5*time.Millisecond)
				p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: time.Second}
				r, rng := w.replicas[0], rand.New(rand.NewPCG(1, 4))
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
				without, windows := 0, 20
				end := p.WindowEnd(limiter.Time(time.Now().UnixNano()))
				var waited int64
				for n := 0; n < windows; {
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / float64(rate)))
					if now := p.WindowEnd(limiter.Time(time.Now().UnixNano())); now != end {
						end = now
						if n++; n > 3 && r.store.blocks.counters()[0].windowOf(end) == nil {
							without++
						}
						if n == 3 {
							waited = r.waited.Load()
						}
					}
					r.request(p, 1)
				}
				t.Logf("%d requests a second: %d of %d windows began without a block, %.1f requests of each waited", rate, without, windows-3, float64(r.waited.Load()-waited)/float64(windows-3))
				if without > 0 {
					t.Errorf("%d requests a second: %d of %d windows began without a block", rate, without, windows-3)
				}
			})
		})
	}
}

// After a block would have been too small, requests do not ask for one again for a moment.
func TestRequestsDoNotAskInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow}
		w.fill(p, 20)
		h := r.store.blocks.counters()[0]
		time.Sleep(10 * time.Millisecond)
		now := r.store.blocks.moment(limiter.Time(time.Now().UnixNano()))
		h.balances[0].clear()
		h.balances[1].clear()
		charge := func(hits uint64) *limiter.Batch { return &limiter.Batch{Charges: []limiter.Charge{{Hits: hits}}} }
		if h.acquire(now, charge(1<<20), 0); h.acquiring.Load() {
			t.Fatal("a block of more than a million hits is requested")
		}
		if h.acquire(now, charge(1), 0); h.acquiring.Load() {
			t.Error("a block is requested at once")
		}
		now.elapsed += retryBlock
		if h.acquire(now, charge(1), 0); !h.acquiring.Load() {
			t.Error("no block is requested later")
		}
	})
}

// An outage that begins after the first block of a window was charged, and before the window does: with
// the fallback [Local], the only replica admits at most the limit in that window.
func TestNextWindowInAnOutage(t *testing.T) {
	const limit = 300
	for _, maxHits := range []uint64{1, 100} {
		for phase := range effort.Times(t, 5) { // of the sweeps
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Duration(phase) * 11 * time.Millisecond)
				w := newBlockWorldWith(t, 1, time.Millisecond, Local)
				r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: limit, Window: time.Second}
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
				start := time.Now().Add(4 * time.Second)
				for time.Until(start) > 20*time.Millisecond { // 500 a second
					time.Sleep(2 * time.Millisecond)
					r.request(p, 1)
				}
				if w := r.store.blocks.counters()[0].windowOf(limiter.Time(start.Add(time.Second).UnixNano())); w == nil || w.unused() < 10 {
					t.Fatal("the next window has no block")
				}
				w.unreachable.Store(true)
				r.cut()
				rng := rand.New(rand.NewPCG(uint64(phase), 6))
				for time.Since(start) < 900*time.Millisecond {
					time.Sleep(100 * time.Microsecond)
					r.request(p, 1+rng.Uint64N(maxHits))
				}
				synctest.Wait()
				w.mu.Lock()
				defer w.mu.Unlock()
				if n := w.admitted[start.Add(time.Second).UnixNano()]; n > limit {
					t.Errorf("requests of up to %d hits, phase %d: %d hits admitted, want at most %d", maxHits, phase, n, limit)
				}
			})
		}
	}
}
