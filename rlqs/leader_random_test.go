package rlqs_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/server/quota"
)

// TestAtMostOneLeader delays and loses requests and replies of the store at random. Two services
// never divide a domain at the same time.
func TestAtMostOneLeader(t *testing.T) {
	changed, idle := 0, 0 // seeds with several leaders in turn, and seeds with hardly any leader
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			shared := newFakeElector()
			random := rand.New(rand.NewPCG(seed, 33))
			var mu sync.Mutex
			disturb := func() bool {
				mu.Lock()
				maxDelay := []time.Duration{100 * time.Millisecond, 4 * time.Second}[random.IntN(6)/5]
				delay, lost := time.Duration(random.Int64N(int64(maxDelay))), random.IntN(8) == 0
				mu.Unlock()
				time.Sleep(delay)
				return lost
			}
			shared.beforeAcquire, shared.afterAcquire = disturb, disturb
			runReplicas(t, []quota.Elector{shared, shared, shared}, func(all []*testService) {
				total, leaders := 0, map[int]bool{}
				for range 40_000 {
					time.Sleep(5 * time.Millisecond)
					current := 0 // number of leaders
					for i, s := range all {
						if s.DividedDomains()["d"] {
							current++
							leaders[i] = true
						}
					}
					if total += current; current > 1 {
						t.Fatal("two services divide at the same time")
					}
				}
				t.Logf("there was a leader for %.0f %% of 200 s, and %d of three services were leaders", float64(total)/400, len(leaders))
				if len(leaders) > 1 {
					changed++
				}
				if total < 4_000 {
					idle++
				}
			})
		})
	}
	// With a single seed, one service may be the leader all the time, because goroutines draw
	// random numbers in any order.
	if changed == 0 || idle > 4 {
		t.Errorf("%d of 8 seeds had several leaders and %d hardly any, so this test proves nothing", changed, idle)
	}
}
