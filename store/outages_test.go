//go:build more

package store

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// Repeated outages do not grant the same allowance again: all outages of a window together admit at
// most the limit plus the hits that each replica had left. After each outage the store is charged
// with exactly the hits that were admitted meanwhile.
func TestOutages(t *testing.T) {
	t.Parallel()
	const (
		limit = 200
		day   = 24 * time.Hour
	)
	policies := []*limiter.Policy{
		{Algorithm: limiter.FixedWindow, Limit: limit, Window: limiter.MaxWindow},
		{Algorithm: limiter.FixedWindow, Limit: limit, Window: limiter.MaxWindow, CountRefused: true},
		{Algorithm: limiter.SlidingWindow, Limit: limit, Window: limiter.MaxWindow, SubWindows: 10},
		{Algorithm: limiter.SlidingLog, Limit: limit, Window: day},
		{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: limit},
		{Algorithm: limiter.LeakyBucket, Limit: 1, Window: day, Slack: limit - 1},
	}
	for _, outages := range []int{1, 5, 20} {
		t.Run(strconv.Itoa(outages), func(t *testing.T) {
			t.Parallel()
			srv := storetest.Start(t)
			relays := []*relay{newRelay(t, srv.Addr, nil, false), newRelay(t, srv.Addr, nil, false)}
			var replicas []*Store
			observers := []*recorder{{}, {}}
			for i, r := range relays {
				replicas = append(replicas, runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: observers[i]}))
			}
			up := func() bool { return replicas[0].Up() && replicas[1].Up() }
			unavailable := func() bool {
				var c caller
				peek := oneHit(100, policies[0])
				peek.Hits = 0
				for _, s := range replicas { // a request notices the outage
					must.OK(t, c.decide(s, peek))
				}
				return !replicas[0].Up() && !replicas[1].Up()
			}
			storetest.Eventually(t, "up", up)
			admitted, exceeded := make([]int, len(policies)), make([]atomic.Int64, len(policies))
			sendAll := func(times int) {
				var c caller
				for _, s := range replicas {
					for n, p := range policies {
						c.exceeded = func(hits uint64) { exceeded[n].Add(int64(hits)) }
						for range times {
							must.OK(t, c.decide(s, oneHit(uint64(n+1), p)))
							if !c.b.Denied {
								admitted[n]++
							}
						}
					}
				}
			}
			left := make([]int, len(policies)) // hits that both replicas can still admit
			sendAll(20)
			for n := range left {
				left[n] = 2*limit - 2*20 - 20 // the first replica does not know the hits of the second
				if policies[n].Algorithm == limiter.SlidingLog {
					left[n] = 2*limit - 2*20 // of a log a replica knows only its own hits
				}
			}
			for range outages {
				for _, r := range relays {
					r.setBlocked(true)
				}
				storetest.Eventually(t, "unavailable", unavailable)
				sendAll(100)
				for _, r := range relays {
					r.setBlocked(false)
				}
				storetest.Eventually(t, "up again", up)
				sendAll(2)
			}
			for n, p := range policies {
				if most := limit + left[n]; admitted[n] > most || admitted[n] < limit {
					t.Errorf("algorithm %d: %d hits were admitted, want %d to %d", p.Algorithm, admitted[n], limit, most)
				}
				if got := exceeded[n].Load(); int(got) != admitted[n]-limit {
					t.Errorf("algorithm %d: %d hits exceeded the limit after the recovery, want %d", p.Algorithm, got, admitted[n]-limit)
				}
				want := admitted[n]
				switch {
				case p.CountRefused: // denied hits also count
					continue
				case p.Algorithm == limiter.SlidingLog: // a log has at most its limit
					want = limit
				case p.Algorithm == limiter.TokenBucket, p.Algorithm == limiter.LeakyBucket: // a bucket has at most one window of debt
					want = min(want, limit+1)
				}
				var c caller
				peek := oneHit(uint64(n+1), p)
				peek.Hits = 0
				if err := c.decide(replicas[0], peek); err != nil || int(c.b.Decisions[0].Before) != want {
					t.Errorf("algorithm %d: the store has %d hits, %v, want %d of the %d admitted hits", p.Algorithm, c.b.Decisions[0].Before, err, want, admitted[n])
				}
			}
			t.Logf("admitted hits with a limit of %d: %v", limit, admitted)
		})
	}
}
