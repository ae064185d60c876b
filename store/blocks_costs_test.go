package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// A costMix draws the hits of requests. The next one is an integer of 0 to 999.
type costMix struct {
	name string
	mean float64
	draw func(next int) int
}

var (
	upTo10  = costMix{"1 to 10", 5.5, func(next int) int { return 1 + next%10 }}
	upTo50  = costMix{"1 to 50", 25.5, func(next int) int { return 1 + next%50 }}
	upTo100 = costMix{"1 to 100", 50.5, func(next int) int { return 1 + next%100 }}
	tenth   = costMix{"a tenth 100, others 1", 10.9, func(next int) int { return max(1, 100*(1-min(1, next%10))) }}
)

// sizeClass returns a class of requests by their hits.
func sizeClass(hits int) int {
	for class, most := range []int{1, 10, 50} {
		if hits <= most {
			return class
		}
	}
	return 3
}

// runCosts sends requests on one counter to three replicas, and checks that the limit is not exceeded. It
// returns the commands of a request without those of probes; the numbers of admitted requests by
// sizeClass, and those of one exact limiter; and the hits of both.
func runCosts(t *testing.T, p *limiter.Policy, mix costMix, demand float64, blocks bool, took time.Duration) (commands float64, got, want [4]int, hits [2]int) {
	t.Helper()
	w, l := newBlockWorld(t, 3, time.Millisecond), newBlockLedger()
	policy := *p
	policy.NoBlocks = !blocks
	p = &policy
	time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(10 * time.Second)))
	idle := w.commands.Load()
	time.Sleep(10 * time.Second)
	before := w.commands.Load()
	probes := float64(before-idle) * took.Seconds() / 10
	rng, n := rand.New(rand.NewPCG(1, 2)), 0
	rate := demand * float64(p.Limit) / p.Window.Seconds() / mix.mean
	for start := time.Now(); time.Since(start) < took; n++ {
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / rate))
		c := chargeOn(1, p)
		c.Hits = uint64(mix.draw(rng.IntN(1000)))
		w.replicas[rng.IntN(3)].requestAll(l, c)
	}
	commands = (float64(w.commands.Load()-before) - probes) / float64(n)
	time.Sleep(time.Second)
	hits[0], hits[1] = l.check(t)
	for _, h := range l.admitted[1] {
		got[sizeClass(h.hits)]++
	}
	fits := room(p)
	for _, h := range l.wanted[1] {
		if fits(h.at, h.hits) {
			want[sizeClass(h.hits)]++
		}
	}
	return commands, got, want, hits
}

// Requests of several hits are admitted as by one exact limiter: of the hits, and of the requests of each
// size, 99 % below the limit and 98 % beyond it. Blocks never cost more commands than they save.
func TestBlocksWithCosts(t *testing.T) {
	bucket := limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1000, Burst: 1000, Window: time.Second}
	fixed := limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: time.Second}
	sliding := limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 10_000, Window: 10 * time.Second, SubWindows: 10}
	type test struct {
		policy   limiter.Policy
		mix      costMix
		demand   float64
		commands float64 // of those without blocks, at most
	}
	tests := []test{{bucket, upTo10, 0.9, 0.5}, {bucket, tenth, 0.9, 1.03}, {fixed, tenth, 1.5, 1.03}, {sliding, tenth, 0.9, 1.03}}
	const took = 60 * time.Second
	if effort.Level(t) >= effort.More {
		tests = append(tests, test{fixed, upTo10, 0.9, 0.5}, test{sliding, upTo10, 0.9, 0.5})
		for _, p := range []limiter.Policy{bucket, fixed, sliding} {
			for _, mix := range []costMix{upTo10, upTo50, upTo100, tenth} {
				for _, demand := range []float64{0.7, 0.9, 1.5, 3} {
					most := 1.05
					if demand == 3 { // a replica with unused hits asks the store about each denial
						most = 1.15
					}
					tests = append(tests, test{p, mix, demand, most})
				}
			}
		}
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("algorithm %v, %s, demand %v", tt.policy.Algorithm, tt.mix.name, tt.demand), func(t *testing.T) {
			var off float64
			synctest.Test(t, func(t *testing.T) {
				off, _, _, _ = runCosts(t, &tt.policy, tt.mix, tt.demand, false, took)
			})
			synctest.Test(t, func(t *testing.T) {
				least := 0.99
				if tt.demand > 1 {
					least = 0.98
				}
				each, got, want, hits := runCosts(t, &tt.policy, tt.mix, tt.demand, true, took)
				t.Logf("%.3f commands per request, %.3f without blocks; %d hits admitted, %d by one limiter; requests by size %d and %d", each, off, hits[0], hits[1], got, want)
				if each > tt.commands*off || float64(hits[0]) < least*float64(hits[1]) {
					t.Errorf("%.3f commands and %d of %d hits admitted, want at most %.3f and at least %v of them", each, hits[0], hits[1], tt.commands*off, least)
				}
				for class := range want {
					if float64(got[class]) < least*float64(want[class])-2 {
						t.Errorf("size %d: %d of %d requests admitted, want at least %v of them", class, got[class], want[class], least)
					}
				}
			})
		})
	}
}

// Counters with few requests have no blocks: these would be idle, and returned, before they are used.
func TestCountersWithFewRequests(t *testing.T) {
	for _, rate := range []float64{0.5, 6, 12} { // a second
		synctest.Test(t, func(t *testing.T) {
			const counters = 100
			w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
			p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: time.Minute, CountRefused: true}
			rng, n, hot := rand.New(rand.NewPCG(1, 2)), 0, 0
			for start := time.Now(); time.Since(start) < 20*time.Second; n++ {
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / (rate * counters)))
				w.replicas[0].requestAll(l, chargeOn(rng.Uint64N(counters), p))
				hot += len(w.replicas[0].store.blocks.counters())
			}
			acquired := w.hitsOf(blockAcquired)
			t.Logf("%v requests a second: %d requests, %d hits of blocks, %.2f counters hot", rate, n, acquired, float64(hot)/float64(n))
			if rate < 10 && (hot > n || int(acquired) > n/50) {
				t.Errorf("%v requests a second: %d hits of blocks for %d requests, and %.2f of %d counters hot", rate, acquired, n, float64(hot)/float64(n), counters)
			}
		})
	}
}

// The variance of huge costs does not overflow.
func TestHugeCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		r := w.replicas[0]
		p := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 4_000_000_000, Burst: 4_000_000_000, Window: time.Second}
		for n := range 100 {
			time.Sleep(10 * time.Millisecond)
			r.request(p, []uint64{1, 3_500_000_000}[n%10/9])
		}
		h := r.store.blocks.counters()[0]
		h.mu.Lock()
		defer h.mu.Unlock()
		if n, _ := h.needLocked(r.store.blocks.elapsed()); n.excess < n.hits {
			t.Errorf("the need is %+v", n)
		}
	})
}
