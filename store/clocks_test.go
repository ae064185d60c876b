//go:build more

package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// Replicas whose clocks are an hour behind and an hour ahead admit exactly the limit, from the
// first request on, because all use the store's clock.
func TestClocksAnHourApart(t *testing.T) {
	t.Parallel()
	policies := []*limiter.Policy{
		{Algorithm: limiter.FixedWindow, Limit: 50, Window: time.Hour},
		{Algorithm: limiter.TokenBucket, Limit: 1, Window: time.Hour, Burst: 50},
		{Algorithm: limiter.SlidingWindow, Limit: 50, Window: 2 * time.Hour, SubWindows: 10},
		{Algorithm: limiter.SlidingLog, Limit: 50, Window: time.Hour},
		{Algorithm: limiter.LeakyBucket, Limit: 1, Window: time.Hour, Slack: 49},
	}
	srv := storetest.Start(t)
	type replica struct {
		*Store
		clock func() time.Time
	}
	var replicas []replica
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		// Each replica has a table of its own, and no state before its first request.
		clock := func() time.Time { return time.Now().Add(ahead) }
		s := runStore(t, Options{Server: serverAt(srv), Fallback: Deny, Clock: clock})
		replicas = append(replicas, replica{s, clock})
		storetest.Eventually(t, "up", s.Up)
		if off := (s.Offset() + ahead).Abs(); off > time.Minute {
			t.Errorf("a replica's clock is %v ahead: the store's clock is estimated %v ahead of the replica's", ahead, s.Offset())
		}
	}
	for round := uint64(0); ; round += 10 {
		hour := time.Now().Add(-time.Second).Truncate(time.Hour)
		admitted := make([]atomic.Int64, len(policies))
		var all sync.WaitGroup
		for _, r := range replicas {
			for range 4 {
				all.Go(func() {
					c := caller{clock: r.clock}
					for i := range 20 * len(policies) {
						n := i % len(policies)
						if err := c.decide(r.Store, oneHit(round+uint64(n+1), policies[n])); err != nil {
							t.Error(err)
						}
						if !c.b.Denied {
							admitted[n].Add(1)
						}
					}
				})
			}
		}
		all.Wait()
		if !time.Now().Add(time.Second).Truncate(time.Hour).Equal(hour) {
			continue // a window ended during the test, or is about to
		}
		for n := range admitted {
			if got := admitted[n].Load(); got != 50 {
				t.Errorf("%d hits admitted by algorithm %d, want 50", got, policies[n].Algorithm)
			}
		}
		return
	}
}
