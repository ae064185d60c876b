package store

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// If the store's clock is set back now and then, no interval of real time has more hits than the limit.
func TestBlocksWhileTheStoresClockGoesBack(t *testing.T) {
	for seed := range uint64(effort.Times(t, 3)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 11))
				w := newBlockWorldAt(t, 2, time.Duration(1+rng.IntN(10))*time.Millisecond, Deny, nil)
				const window = 4 * time.Second
				p := []*limiter.Policy{
					{Algorithm: limiter.FixedWindow, Limit: 600, Window: window},
					{Algorithm: limiter.SlidingWindow, Limit: 600, Window: window, SubWindows: 10},
					{Algorithm: limiter.TokenBucket, Limit: 600, Burst: 600, Window: window},
				}[seed%3]
				var mu sync.Mutex
				var all []hitsAt
				offset, next, favourite := time.Duration(0), time.Now().Add(2*time.Second), 0
				demand := 100 + rng.Float64()*500
				for start := time.Now(); time.Since(start) < 20*time.Second; {
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / demand))
					if time.Now().After(next) {
						next = time.Now().Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
						offset -= time.Duration(rng.IntN(700)) * time.Millisecond
						w.host.SetOffset(offset)
						favourite = rng.IntN(2)
					}
					r := w.replicas[favourite]
					if rng.IntN(4) == 0 {
						r = w.replicas[1-favourite]
					}
					x := &caller{clock: r.store.options.Clock}
					done, err := x.start(r.store, 0, chargeOn(1, p))
					record := func(at time.Time) {
						mu.Lock()
						defer mu.Unlock()
						if err == nil && !x.b.Denied {
							all = append(all, hitsAt{at, 1})
						}
					}
					if done {
						record(time.Now())
						continue
					}
					go func() {
						err = <-x.decided
						record(time.Now())
					}()
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				slices.SortStableFunc(all, func(a, b hitsAt) int { return a.at.Compare(b.at) })
				worst := 0
				for i := range all {
					n := 0
					for _, h := range all[i:] {
						if h.at.Sub(all[i].at) >= window-2*w.trip {
							break
						}
						n++
					}
					room := int(p.Limit)
					if p.Algorithm == limiter.TokenBucket {
						room *= 2
					}
					worst = max(worst, n-room)
				}
				t.Logf("algorithm %d: %d admitted, acquired %d, returned %d, lost %d, offset %v", p.Algorithm, len(all), w.hitsOf(blockAcquired), w.hitsOf(blockReturned), w.hitsOf(blockLost), offset)
				if worst > 0 {
					t.Errorf("algorithm %d: %d hits beyond the limit", p.Algorithm, worst)
				}
			})
		})
	}
}
