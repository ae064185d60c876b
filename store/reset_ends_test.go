package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestEndAfterReset ends requests that reserved hits before a reset: the store charges no cost.
func TestEndAfterReset(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingWindow, limiter.TokenBucket} {
		for _, release := range []bool{false, true} {
			p := &limiter.Policy{
				Algorithm: algorithm, Limit: 1000, Window: time.Hour, SubWindows: 10, Burst: 1000,
				Reserve: limiter.NewReserve(4, time.Minute, release),
			}
			synctest.Test(t, func(t *testing.T) {
				w := newDistantWorld(t, time.Millisecond)
				w.start(t)
				var c caller
				decide := func(hits uint64, reserve bool, lease uint64) []limiter.Decision {
					t.Helper()
					charge := oneHit(1, p)
					charge.Hits, charge.Reserve = hits, reserve
					charges := []limiter.Charge{charge}
					if lease > 0 {
						returned := oneHit(1, p)
						returned.Hits, returned.Refund, returned.Group = lease, true, 1
						charges = append(charges, returned)
					}
					must.OK(t, c.decide(w.Store, charges...))
					return c.b.Decisions
				}
				start := func(hits uint64) uint64 {
					t.Helper()
					decide(hits, true, 0)
					return c.b.Lease(0)
				}
				used := func() uint64 { return decide(0, true, 0)[0].Before }
				first, second := start(100), start(1)
				for range 2 {
					b := &limiter.Batch{Charges: []limiter.Charge{oneHit(1, p)}}
					_, err := w.Reset(t.Context(), limiter.Time(time.Now().UnixNano()), b, c.names, 0)
					must.OK(t, err)
				}
				later := start(20)
				for range 2 { // an end may arrive twice
					if d := decide(70, false, first); d[0].Charged != 0 || d[1].Charged != 0 || used() != 20 {
						t.Errorf("the end of a request from before the reset is %+v, and %d hits are used, want 20", d, used())
					}
				}
				if decide(0, false, second); used() != 20 {
					t.Errorf("after an end without a cost %d hits are used, want 20", used())
				}
				if d := decide(100, false, later); d[0].Charged != 100 || used() != 100 {
					t.Errorf("the end of a request from after the reset is %+v, and %d hits are used, want 100", d, used())
				}
				for n := range 4 {
					if start(10) == 0 {
						t.Fatalf("only %d of 4 requests were admitted after the reset", n)
					}
				}
			})
		}
	}
}
