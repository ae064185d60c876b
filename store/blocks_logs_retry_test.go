package store

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// The only client of a log with blocks is admitted if it waits for its retry-after.
func TestRetryAfterOfLogs(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 5))
				replicas := 1 + int(seed%3)
				w, p := newBlockWorld(t, replicas, time.Duration(1+rng.IntN(10))*time.Millisecond), logPolicy(uint32(40+rng.IntN(400)), time.Duration(4+rng.IntN(3))*time.Second)
				denied, wrong := 0, 0
				worst := time.Duration(0)
				for start := time.Now(); time.Since(start) < 40*time.Second; {
					time.Sleep(time.Duration(rng.ExpFloat64() * 1.3 * float64(p.Window) / float64(p.Limit)))
					r := w.replicas[rng.IntN(replicas)]
					var c caller
					charge := oneHit(1, p)
					if rng.IntN(3) == 0 {
						charge.Hits = 1 + rng.Uint64N(12)
					}
					if rng.IntN(50) == 0 {
						charge.Hits = 1 + rng.Uint64N(uint64(p.Limit)/2)
					}
					must.OK(t, c.decide(r.store, charge))
					d := c.b.Decisions[0]
					if !d.Over {
						continue
					}
					denied++
					time.Sleep(d.RetryAfter)
					must.OK(t, c.decide(r.store, charge))
					if d2 := c.b.Decisions[0]; d2.Over {
						wrong++
						worst = max(worst, d2.RetryAfter)
					}
				}
				t.Logf("replicas %d N %d W %v: %d denied, %d denied again; worst %v; acquired %d", replicas, p.Limit, p.Window, denied, wrong, worst, w.hitsOf(blockAcquired))
				if wrong > 0 {
					t.Error("denied again")
				}
			})
		})
	}
}
