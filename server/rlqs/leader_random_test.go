package rlqs_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/server/rlqs"
)

// TestNeverTwo has answers of the store be late and lost, at random, and services end and come: no two divide at once.
func TestNeverTwo(t *testing.T) {
	changed, idle := 0, 0 // worlds in which several divided one after another, and in which hardly anybody did
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			shared := newShelf()
			random := rand.New(rand.NewPCG(seed, 33))
			var mu sync.Mutex
			odd := func() bool {
				mu.Lock()
				most := []time.Duration{100 * time.Millisecond, 4 * time.Second}[random.IntN(6)/5]
				wait, lost := time.Duration(random.Int64N(int64(most))), random.IntN(8) == 0
				mu.Unlock()
				time.Sleep(wait)
				return lost
			}
			shared.before, shared.after = odd, odd
			playRoles(t, []rlqs.Elector{shared, shared, shared}, func(all []*stage) {
				served, by := 0, map[int]bool{}
				for range 40_000 {
					time.Sleep(5 * time.Millisecond)
					divide := 0
					for i, s := range all {
						if s.DividedDomains()["d"] {
							divide++
							by[i] = true
						}
					}
					if served += divide; divide > 1 {
						t.Fatal("two divide at once")
					}
				}
				t.Logf("in 200 s somebody divided for %.0f %%, %d of three did", float64(served)/400, len(by))
				if len(by) > 1 {
					changed++
				}
				if served < 4_000 {
					idle++
				}
			})
		})
	}
	// One world alone may keep one service all the time: goroutines draw the answers in any order.
	if changed == 0 || idle > 4 {
		t.Errorf("in %d of 8 worlds several divided, and in %d hardly anybody did, so this says nothing", changed, idle)
	}
}
