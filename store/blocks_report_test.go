package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// The unused hits of all replicas and the admitted ones are the hits that the store has counted.
func TestBlocksAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 2, time.Millisecond)
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 100_000, Window: time.Hour}
		time.Sleep(2 * probeInterval) // both replicas have counted each other
		checks := 0
		for range 3000 {
			time.Sleep(time.Millisecond)
			for _, r := range w.replicas {
				r.request(p, 1)
			}
			time.Sleep(10 * w.trip) // the charge of a block has been answered
			synctest.Wait()
			var total uint64
			now := limiter.Time(time.Now().UnixNano())
			for _, r := range w.replicas {
				hot, replicas, ok := r.store.Blocks(now, func(c *limiter.Charge, description any, unused, size uint64) {
					if c.ID != oneHit(1, p).ID || description != c.ID || unused > size {
						t.Fatalf("a block of %v, %v, with %d of %d hits", c.ID, description, unused, size)
					}
					total += unused
				})
				if !ok || hot > 1 || replicas != 2 {
					t.Fatalf("%d hot counters, %d replicas, %t; want at most 1, 2 and true", hot, replicas, ok)
				}
			}
			if total == 0 {
				continue
			}
			var c caller
			peek := oneHit(1, p)
			peek.Hits = 0
			must.OK(t, c.decide(w.replicas[0].store, peek))
			if got := uint64(w.total()) + total; got != c.b.Decisions[0].Before {
				t.Fatalf("%d hits admitted and %d unused, but the store has %d", w.total(), total, c.b.Decisions[0].Before)
			}
			if checks++; checks == 100 {
				return
			}
		}
		t.Fatalf("%d checks, want 100", checks)
	})
}

// Without the option there are no blocks.
func TestNoBlocksAreReported(t *testing.T) {
	s := newStore(t, Options{})
	if hot, replicas, ok := s.Blocks(0, func(*limiter.Charge, any, uint64, uint64) { t.Error("a block") }); hot != 0 || replicas != 0 || ok {
		t.Errorf("%d hot counters, %d replicas, %t; want none", hot, replicas, ok)
	}
}
