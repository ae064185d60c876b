package store

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
)

type byBlockObserver struct {
	*blockWorld

	used atomic.Int64
}

func (o *byBlockObserver) Decided(by string, charges int) {
	if by == byBlock {
		o.used.Add(int64(charges))
	}
}

// While a store flaps, each acquired hit is used, returned, lost or unused.
func TestEventsBalanceWhileAStoreFlaps(t *testing.T) {
	for seed := range uint64(effort.Times(t, 8)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 5))
				w := newBlockWorld(t, 1, time.Duration(1+rng.IntN(40))*time.Millisecond)
				w.lossy = true
				o := &byBlockObserver{blockWorld: w}
				r := w.replicas[0]
				r.store.options.Observer = o
				l := newBlockLedger()
				p := []*limiter.Policy{
					{Algorithm: limiter.FixedWindow, Limit: 1 << 24, Window: time.Second},
					{Algorithm: limiter.FixedWindow, Limit: 1 << 24, Window: time.Hour},
					{Algorithm: limiter.SlidingWindow, Limit: 1 << 24, Window: 10 * time.Second, SubWindows: 10},
					{Algorithm: limiter.TokenBucket, Limit: 4000, Burst: 8000, Window: time.Second},
				}[seed/2%4]
				next := time.Now()
				for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / 800))
					if time.Now().After(next) {
						next = time.Now().Add(time.Duration(200+rng.IntN(900)) * time.Millisecond)
						if seed%2 == 0 {
							r.cut()
						}
						if rng.IntN(3) == 0 {
							time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
						}
					}
					r.requestAll(l, chargeOn(1, p))
				}
				time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
				synctest.Wait()
				sum := o.used.Load() + int64(w.hitsOf(blockReturned)+w.hitsOf(blockLost)) + int64(r.unused())
				if got := int64(w.hitsOf(blockAcquired)); got != sum {
					t.Errorf("algorithm %d: %d acquired, but %d used, %d returned, %d lost, %d unused: %d", p.Algorithm, got, o.used.Load(), w.hitsOf(blockReturned), w.hitsOf(blockLost), r.unused(), sum)
				}
				t.Logf("algorithm %d: %d acquired, %d used, %d returned, %d lost", p.Algorithm, w.hitsOf(blockAcquired), o.used.Load(), w.hitsOf(blockReturned), w.hitsOf(blockLost))
			})
		})
	}
}

// At the end, a distant store gets back the unused hits of many counters, in several runs.
func TestStopReturnsHitsOfManyCountersToADistantStore(t *testing.T) {
	for _, counters := range []uint64{30, 200} {
		synctest.Test(t, func(t *testing.T) {
			w, l := newBlockWorld(t, 1, 40*time.Millisecond), newBlockLedger()
			r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 1 << 20, Window: limiter.MaxWindow, SubWindows: limiter.MaxSubWindows}
			for range 2500 { // no probe is in flight at the end
				time.Sleep(time.Millisecond)
				for id := range counters {
					if id%25 == uint64(time.Now().UnixMilli()%25) {
						r.requestAll(l, chargeOn(1+id, p))
					}
				}
			}
			unused, returned, lost := r.unused(), w.hitsOf(blockReturned), w.hitsOf(blockLost)
			began := time.Now()
			r.stop()
			t.Logf("%d counters, %d unused, ended in %v", counters, unused, time.Since(began))
			if got := int(w.hitsOf(blockReturned) - returned); got < unused {
				t.Errorf("%d counters: %d of %d unused hits were returned, and %d counted as lost, in %v", counters, got, unused, w.hitsOf(blockLost)-lost, time.Since(began))
			}
		})
	}
}
