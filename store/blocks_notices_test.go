package store

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// crossings counts how often the count of a window reaches a number of hits.
type crossings struct {
	at    []uint64
	mu    sync.Mutex
	found map[limiter.Time][]int // by end of the window, parallel to at
}

// add adds the change of the count of a window.
func (c *crossings) add(end limiter.Time, before, after uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found[end] == nil {
		c.found[end] = make([]int, len(c.at))
	}
	for i, n := range c.at {
		if before < n && after >= n {
			c.found[end][i]++
		}
	}
}

// ObserveBlock implements [limiter.BlockObserver].
func (c *crossings) ObserveBlock(int) func(now, end limiter.Time, before, after uint64) {
	return func(_, end limiter.Time, before, after uint64) { c.add(end, before, after) }
}

// TestCountsAreObservedOnce lets replicas with blocks charge requests of several hits to a window. The
// count of the store passes each number once, in a request or in a block of any replica.
func TestCountsAreObservedOnce(t *testing.T) {
	for _, demand := range []float64{0.9, 2} {
		synctest.Test(t, func(t *testing.T) {
			const limit, windows = 2000, 5
			w := newBlockWorld(t, 3, time.Millisecond)
			p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: limit, Window: time.Second, CountRefused: true}
			c := &crossings{found: map[limiter.Time][]int{}}
			for n := uint64(1); n < limit/2; n += 20 {
				c.at = append(c.at, n)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
			start := time.Now()
			for time.Since(start) < windows*time.Second {
				hits := 1 + rng.Uint64N(9)
				if rng.IntN(20) == 0 {
					hits += 60 // larger than most blocks
				}
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(hits) * float64(time.Second) / (demand * limit)))
				r, charge := w.replicas[rng.IntN(len(w.replicas))], oneHit(1, p)
				charge.Hits = hits
				go func() {
					x := caller{observer: c}
					if err := x.decide(r.store, charge); err != nil {
						t.Error(err)
					}
					d := &x.b.Decisions[0]
					end := p.WindowEnd(limiter.Time(time.Now().UnixNano()))
					if d.Charged > 0 {
						c.add(end, d.Before+x.b.Precharged(0), d.Before+d.Charged)
					}
				}()
			}
			synctest.Wait()
			if w.hitsOf(blockAcquired) == 0 {
				t.Error("no block was charged")
			}
			for n := range windows {
				end := limiter.Time(start.Add(time.Duration(n+1) * time.Second).UnixNano())
				found := c.found[end]
				if found == nil {
					t.Fatalf("demand %v: window %d has no hits", demand, n)
				}
				for i, n := range found {
					if n != 1 {
						t.Errorf("demand %v: in the window that ends at %v the count passes %d hits %d times, want once", demand, end, c.at[i], n)
					}
				}
			}
		})
	}
}
