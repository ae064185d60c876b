package rlqs_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/server/rlqs"
)

// TestAtMostOneLeader delays and loses requests and replies of the store at random: two services
// never divide at once.
func TestAtMostOneLeader(t *testing.T) {
	changed, idle := 0, 0 // seeds with several leaders in turn, and seeds with hardly any leader
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			shared := newFakeElector()
			random := rand.New(rand.NewPCG(seed, 33))
			var mu sync.Mutex
			disturb := func() bool {
				mu.Lock()
				longest := []time.Duration{100 * time.Millisecond, 4 * time.Second}[random.IntN(6)/5]
				wait, lost := time.Duration(random.Int64N(int64(longest))), random.IntN(8) == 0
				mu.Unlock()
				time.Sleep(wait)
				return lost
			}
			shared.beforeAcquire, shared.afterAcquire = disturb, disturb
			runReplicas(t, []rlqs.Elector{shared, shared, shared}, func(all []*testService) {
				total, leaders := 0, map[int]bool{}
				for range 40_000 {
					time.Sleep(5 * time.Millisecond)
					now := 0
					for i, s := range all {
						if s.DividedDomains()["d"] {
							now++
							leaders[i] = true
						}
					}
					if total += now; now > 1 {
						t.Fatal("two services divide at once")
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
	// With a single seed one service may be the leader all the time, because goroutines draw random
	// numbers in any order.
	if changed == 0 || idle > 4 {
		t.Errorf("%d of 8 seeds had several leaders and %d hardly any, so the test is void", changed, idle)
	}
}
