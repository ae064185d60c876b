package store

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Connections that flap cost no hits, as long as they lead to the same data: replicas admit the limit
// and no more. They do without blocks if the server does not tell which data it has.
func TestBlocksStayOverLostConnections(t *testing.T) {
	for name, p := range map[string]*limiter.Policy{
		"fixed window":   {Algorithm: limiter.FixedWindow, Limit: 8000, Window: limiter.MaxWindow},
		"sliding window": {Algorithm: limiter.SlidingWindow, Limit: 8000, Window: time.Hour, SubWindows: 10},
	} {
		for _, maxHits := range []uint64{1, 10, 100} {
			synctest.Test(t, func(t *testing.T) {
				w, l := newBlockWorld(t, 3, time.Millisecond), newBlockLedger()
				rng, next := rand.New(rand.NewPCG(maxHits, 8)), time.Now().Add(time.Second)
				wanted := 0
				for wanted < 2*int(p.Limit) {
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Millisecond) * float64(1+maxHits) / 2))
					c := chargeOn(1, p)
					c.Hits = 1 + rng.Uint64N(maxHits)
					wanted += int(c.Hits)
					w.replicas[rng.IntN(3)].requestAll(l, c)
					if time.Now().After(next) {
						next = time.Now().Add(time.Second)
						for _, r := range w.replicas {
							r.cut()
						}
					}
				}
				time.Sleep(time.Second)
				admitted, admissible := l.check(t)
				t.Logf("%s, up to %d hits: %d of %d hits admitted, %d lost", name, maxHits, admitted, admissible, w.hitsOf(blockLost))
				if admitted < admissible*99/100 {
					t.Errorf("%s, up to %d hits: %d hits admitted, want at least 99 %% of %d", name, maxHits, admitted, admissible)
				}
			})
		}
	}
}

// Blocks end if the store may have other data: that of another server, or of one that does not report
// which it has.
func TestBlocksEndWithTheirData(t *testing.T) {
	for _, tt := range []struct {
		before, after string
		kept          bool
	}{{"a", "a", true}, {"a", "b", false}, {"", "", false}, {"a", "", false}} {
		synctest.Test(t, func(t *testing.T) {
			w := newBlockWorld(t, 1, time.Millisecond)
			r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 100_000, Window: limiter.MaxWindow}
			reconnect := func(id string) {
				w.host.SetDataID(id)
				r.cut()
				synctest.Wait()
				for !r.store.Up() {
					time.Sleep(time.Millisecond)
				}
			}
			reconnect(tt.before)
			w.fill(p, 40)
			unused := r.unused()
			reconnect(tt.after)
			if kept := r.unused() == unused; kept != tt.kept {
				t.Errorf("from %q to %q: %d of %d unused hits are left", tt.before, tt.after, r.unused(), unused)
			}
			time.Sleep(time.Second)
			if tt.kept && r.unused() > 0 || int(w.hitsOf(blockReturned)) < unused && tt.kept {
				t.Errorf("%d hits were returned, want the %d unused ones", w.hitsOf(blockReturned), unused)
			}
		})
	}
}
