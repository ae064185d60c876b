package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// With a store that is 80 ms away, few requests wait for it, because the next block is charged before
// one of a bucket ends, and hits of a sub-window that are still needed are not returned.
func TestBlocksOfDistantStore(t *testing.T) {
	const trip = 80 * time.Millisecond
	for _, tt := range []struct {
		policy   limiter.Policy
		demand   float64 // relative to the limit
		waits    float64 // part of the requests, at most
		admitted float64 // part of the admissible hits, at least
	}{
		{limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 1000, Window: time.Second}, 0.8, 0.08, 0.99},
		{limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 1000, Slack: 1000, Window: time.Second}, 0.8, 0.08, 0.99},
		{limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 4000, SubWindows: 10, Window: 4 * time.Second}, 0.8, 0.32, 0.99},
		{limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 4000, SubWindows: 10, Window: 4 * time.Second}, 1.5, 0.38, 0.94},
		{limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: time.Second}, 0.8, 0.03, 0.99},
	} {
		t.Run(fmt.Sprintf("algorithm %v, demand %v", tt.policy.Algorithm, tt.demand), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, p := newBlockWorld(t, 3, trip), &tt.policy
				rng := rand.New(rand.NewPCG(1, 2))
				rate := float64(p.Limit) / p.Window.Seconds() * tt.demand
				time.Sleep(time.Until(time.Now().Truncate(p.Window).Add(p.Window)))
				load := func(seconds int) (requests, waited, admitted float64) {
					before := [2]float64{float64(w.waited()), float64(w.total())}
					for start := time.Now(); time.Since(start) < time.Duration(seconds)*time.Second; requests++ {
						time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / rate))
						w.replicas[rng.IntN(3)].request(p, 1)
					}
					return requests, float64(w.waited()) - before[0], float64(w.total()) - before[1]
				}
				load(5)
				requests, waited, admitted := load(10)
				part := admitted / min(requests, 10*rate/tt.demand)
				t.Logf("%.3f of the requests waited, and %.3f of the admissible hits were admitted", waited/requests, part)
				if waited > tt.waits*requests || part < tt.admitted {
					t.Errorf("want at most %v and at least %v", tt.waits, tt.admitted)
				}
			})
		})
	}
}

// Buckets have no blocks that would last less than two round trips: these would end before
// most of their hits are used.
func TestNoBlocksThatEndBeforeTheyArrive(t *testing.T) {
	for _, p := range []*limiter.Policy{
		{Algorithm: limiter.TokenBucket, Limit: 500, Burst: 500, Window: time.Second},
	} {
		for trip, want := range map[time.Duration]bool{20 * time.Millisecond: true, 200 * time.Millisecond: false} {
			synctest.Test(t, func(t *testing.T) {
				w := newBlockWorld(t, 1, trip)
				for range 1500 {
					time.Sleep(4 * time.Millisecond)
					w.replicas[0].request(p, 1)
				}
				if n := w.hitsOf(blockAcquired); n > 100 != want { // some, until the round trip is known
					t.Errorf("algorithm %v, round trip %v: blocks had %d hits", p.Algorithm, trip, n)
				}
			})
		}
	}
}
