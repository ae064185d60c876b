//go:build more

package store

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

func runStore(tb testing.TB, o Options) *Store {
	tb.Helper()
	s := newStore(tb, o)
	s.syncBound = longTimeout // once the store is up, all hits are synced
	runUntilEnd(tb, s)
	return s
}

func serverAt(s *storetest.Server) redis.Server { return redis.Server{Network: "tcp", Address: s.Addr} }

// reset resets the named counter.
func reset(s *Store, p *limiter.Policy, name []byte) (used uint64, err error) {
	b := &limiter.Batch{Charges: []limiter.Charge{{Policy: p}}}
	return s.Reset(context.Background(), limiter.Time(s.options.Clock().UnixNano()), b, [][]byte{name}, 0)
}

// Two replicas under load admit exactly the limit, and so do five.
func TestReplicasShare(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{2, 5} {
		t.Run(strconv.Itoa(replicas), func(t *testing.T) {
			t.Parallel()
			testSharing(t, replicas)
		})
	}
}

func testSharing(t *testing.T, replicas int) {
	t.Helper()
	policies := []*limiter.Policy{
		{Algorithm: limiter.FixedWindow, Limit: 500, Window: 10 * 365 * 24 * time.Hour},
		{Algorithm: limiter.TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: 500},
		{Algorithm: limiter.SlidingWindow, Limit: 500, Window: 24 * time.Hour, SubWindows: 10},
		{Algorithm: limiter.SlidingLog, Limit: 500, Window: 24 * time.Hour},
		{Algorithm: limiter.LeakyBucket, Limit: 1, Window: 24 * time.Hour, Slack: 499},
	}
	srv := storetest.Start(t)
	var stores []*Store
	for range replicas {
		stores = append(stores, runStore(t, Options{Server: serverAt(srv)}))
	}
	for _, s := range stores {
		storetest.Eventually(t, "up", s.Up)
	}
	admitted := make([]atomic.Int64, len(policies))
	var all sync.WaitGroup
	for _, s := range stores {
		for range 8 {
			all.Go(func() {
				var c caller
				for i := range 100 * len(policies) {
					n := i % len(policies)
					if err := c.decide(s, oneHit(uint64(n+1), policies[n])); err != nil {
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
	for n := range admitted {
		if got := admitted[n].Load(); got != 500 {
			t.Errorf("%d hits admitted by algorithm %d, want 500", got, policies[n].Algorithm)
		}
	}
	for _, key := range []string{"s1{2}_x", "s1{3}_x", "s1{4}_x", "s1{5}_x"} {
		if ttl := srv.Must("TTL", key); ttl[0] == '-' {
			t.Errorf("%s has a TTL of %s", key, ttl)
		}
	}
	const others = `local n = 0 for _, key in ipairs(redis.call('KEYS', '*')) do if not key:find('s1{probe', 1, true) then n = n + 1 end end return n`
	if keys := srv.Must("EVAL", others, "0"); keys != strconv.Itoa(len(policies)) {
		t.Errorf("%s keys, want %d", keys, len(policies))
	}
}
