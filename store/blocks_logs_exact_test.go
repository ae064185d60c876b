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

// In the end the store has the hits that were admitted, and those that were reported lost.
func TestCountOfALogWithBlocks(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 9))
				replicas := 1 + int(seed%4)
				w, l, p := newBlockWorld(t, replicas, time.Duration(1+rng.IntN(20))*time.Millisecond), newBlockLedger(), logPolicy(limiter.MaxLog, time.Hour)
				second := chargeOn(2, randomPolicy(rng))
				for second.Policy.Algorithm == limiter.TokenBucket || second.Policy.Algorithm == limiter.LeakyBucket {
					second = chargeOn(2, randomPolicy(rng)) // whose lost hits would count here
				}
				second.Policy.Limit = 50
				isGrouped := seed%2 == 0
				for start := time.Now(); time.Since(start) < 10*time.Second; {
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / 100))
					if rng.IntN(60) == 0 {
						time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
					}
					c := chargeOn(1, p)
					if rng.IntN(4) == 0 {
						c.Hits = 1 + rng.Uint64N(8)
					}
					r := w.replicas[rng.IntN(replicas)]
					if isGrouped && rng.IntN(2) == 0 {
						r.requestAll(l, c, second)
					} else {
						r.requestAll(l, c)
					}
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
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
