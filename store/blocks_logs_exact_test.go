package store

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// loadLog calls send for requests on a log at random replicas: rate requests per second on average,
// with pauses in which blocks become idle. After the given duration it waits until unused hits have
// been returned.
func (w *blockWorld) loadLog(rng *rand.Rand, p *limiter.Policy, rate float64, d time.Duration, send func(r *blockReplica, c limiter.Charge)) {
	for start := time.Now(); time.Since(start) < d; {
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / rate))
		if rng.IntN(60) == 0 {
			time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
		}
		c := chargeOn(1, p)
		if rng.IntN(4) == 0 {
			c.Hits = 1 + rng.Uint64N(8)
		}
		send(w.replicas[rng.IntN(len(w.replicas))], c)
	}
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// In the end the store has the hits that were admitted, and those that were reported lost.
func TestCountOfALogWithBlocks(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 9))
				w, l := newBlockWorld(t, 1+int(seed%4), time.Duration(1+rng.IntN(20))*time.Millisecond), newBlockLedger()
				p, second := logPolicy(limiter.MaxLog, time.Hour), chargeOn(2, randomPolicy(rng))
				for second.Policy.Algorithm == limiter.TokenBucket || second.Policy.Algorithm == limiter.LeakyBucket {
					second = chargeOn(2, randomPolicy(rng)) // lost hits of a bucket would count here
				}
				second.Policy.Limit = 50
				isGrouped := seed%2 == 0
				w.loadLog(rng, p, 100, 10*time.Second, func(r *blockReplica, c limiter.Charge) {
					if isGrouped && rng.IntN(2) == 0 {
						r.requestAll(l, c, second)
					} else {
						r.requestAll(l, c)
					}
				})
				var c caller
				peek := chargeOn(1, p)
				peek.Hits = 0
				must.OK(t, c.decide(w.replicas[0].store, peek))
				got, want, lost := int(c.b.Decisions[0].Before), l.admittedOf(1), int(w.hitsOf(blockLost))
				if got < want || got > want+lost {
					t.Errorf("the store has %d hits, want %d to %d; acquired %d returned %d", got, want, want+lost, w.hitsOf(blockAcquired), w.hitsOf(blockReturned))
				}
			})
		})
	}
}

// Without faults, all unused hits of the blocks of a log are returned.
func TestNoHitsOfALogAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newBlockWorld(t, 3, time.Millisecond), newBlockLedger()
		w.loadLog(rand.New(rand.NewPCG(1, 9)), logPolicy(limiter.MaxLog, time.Hour), 60, 20*time.Second, func(r *blockReplica, c limiter.Charge) {
			r.requestAll(l, c)
		})
		admitted, _ := l.check(t)
		unused := 0
		for _, r := range w.replicas {
			unused += r.unused()
		}
		if n := w.hitsOf(blockLost); n > 0 {
			t.Errorf("%d of %d hits were lost: they count for an hour (%d returned, %d admitted, %d unused)", n, w.hitsOf(blockAcquired), w.hitsOf(blockReturned), admitted, unused)
		}
	})
}
