package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Demand that pauses before each sub-window ends does not cost hits: those that are unused then are
// returned.
func TestBlocksOfBursts(t *testing.T) {
	for _, tt := range []struct {
		trip   time.Duration
		demand float64 // relative to the limit
	}{
		{time.Millisecond, 1.5},
		{80 * time.Millisecond, 0.8},
		{80 * time.Millisecond, 1.5},
	} {
		t.Run(fmt.Sprintf("trip %v, demand %v", tt.trip, tt.demand), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const on, period, seconds = 200 * time.Millisecond, 400 * time.Millisecond, 8
				w, rng := newBlockWorld(t, 3, tt.trip), rand.New(rand.NewPCG(1, 2))
				p := &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 2000, SubWindows: 10, Window: 4 * time.Second}
				rate := tt.demand * float64(p.Limit) / p.Window.Seconds()
				time.Sleep(time.Until(time.Now().Truncate(20 * time.Second).Add(20 * time.Second)))
				load := func(d time.Duration) (requests float64) {
					for start := time.Now(); time.Since(start) < d; requests++ {
						time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / rate * float64(on) / float64(period)))
						if in := time.Since(time.Now().Truncate(period)); in >= on {
							time.Sleep(period - in)
						}
						w.replicas[rng.IntN(3)].request(p, 1)
					}
					return requests
				}
				load(4 * time.Second)
				before := w.total()
				requests := load(seconds * time.Second)
				part := float64(w.total()-before) / min(requests, seconds*rate/tt.demand)
				t.Logf("%.3f of the admissible hits were admitted, %d hits lost of %d", part, w.hitsOf(blockLost), w.hitsOf(blockAcquired))
				if part < 0.98 {
					t.Errorf("%.3f of the admissible hits were admitted, want at least 0.98", part)
				}
			})
		})
	}
}
