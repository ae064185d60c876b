package store

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Without faults, all unused hits of the blocks of a log are returned.
func TestNoHitsOfALogAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l, p := newBlockWorld(t, 3, time.Millisecond), newBlockLedger(), logPolicy(limiter.MaxLog, time.Hour)
		rng := rand.New(rand.NewPCG(1, 9))
		for start := time.Now(); time.Since(start) < 20*time.Second; {
			time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / 60))
			if rng.IntN(60) == 0 {
				time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
			}
			c := chargeOn(1, p)
			if rng.IntN(4) == 0 {
				c.Hits = 1 + rng.Uint64N(8)
			}
			w.replicas[rng.IntN(3)].requestAll(l, c)
		}
		time.Sleep(3 * time.Second)
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
