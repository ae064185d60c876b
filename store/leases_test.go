package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// spot is a charge on a limit of n at once.
func spot(counter uint64, n uint32) limiter.Charge {
	return hit(counter, &limiter.Policy{Algorithm: limiter.Concurrency, Limit: n, Window: time.Hour})
}

// take takes a place, and returns its lease, 0 if there is none.
func (c *caller) take(tb testing.TB, s *Store, charge limiter.Charge) uint64 {
	tb.Helper()
	if err := c.ask(s, charge); err != nil {
		tb.Fatal(err)
	}
	return c.b.Lease(0)
}

// give gives a lease back, and reports whether it was held.
func (c *caller) give(tb testing.TB, s *Store, charge limiter.Charge, lease uint64) bool {
	tb.Helper()
	charge.Hits, charge.Refund = lease, true
	if err := c.ask(s, charge); err != nil {
		tb.Fatal(err)
	}
	return c.b.Decisions[0].Charged > 0
}

// Over two replicas no more than N are held at once, and all N can be, wherever a place is given back. A lease that is
// stale, comes twice or is of another counter frees none.
func TestPlacesAreShared(t *testing.T) {
	t.Parallel()
	const n, callers, rounds = 16, 8, 300
	srv := storetest.Start(t)
	replicas := []*Store{runStore(t, Options{Server: at(srv)}), runStore(t, Options{Server: at(srv)})}
	for _, s := range replicas {
		storetest.Eventually(t, "up", s.Up)
	}
	var held, most, denied, taken atomic.Int64
	var all sync.WaitGroup
	for i := range 2 * callers {
		all.Go(func() {
			var c caller
			var mine []uint64
			for round := range rounds {
				here, there := replicas[(i+round)%2], replicas[(i+round/3)%2]
				if lease := c.take(t, here, spot(1, n)); lease == 0 {
					denied.Add(1)
				} else {
					mine = append(mine, lease)
					taken.Add(1)
					now := held.Add(1)
					for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
					}
				}
				if len(mine) > 1 || round%3 == 2 && len(mine) > 0 {
					held.Add(-1)
					if !c.give(t, there, spot(1, n), mine[0]) {
						t.Error("a place that is held was not")
					}
					if c.give(t, here, spot(2, n), mine[0]) {
						t.Error("a place of another counter was given back")
					}
					mine = mine[1:]
				}
			}
			for _, lease := range mine {
				held.Add(-1)
				c.give(t, replicas[0], spot(1, n), lease)
			}
		})
	}
	all.Wait()
	t.Logf("%d taken, %d denied, %d at once", taken.Load(), denied.Load(), most.Load())
	if most.Load() > n || denied.Load() == 0 {
		t.Errorf("%d held at once, %d denied, want %d at most and some", most.Load(), denied.Load(), n)
	}
	var c caller
	for i := range n {
		if c.take(t, replicas[i%2], spot(1, n)) == 0 {
			t.Errorf("place %d of %d was not to be had when all had been given back", i+1, n)
		}
	}
	if c.take(t, replicas[0], spot(1, n)) != 0 {
		t.Errorf("place %d was given", n+1)
	}
	other := c.take(t, replicas[0], spot(2, n))
	if c.give(t, replicas[1], spot(1, n), other) || !c.give(t, replicas[1], spot(2, n), other) || c.give(t, replicas[0], spot(2, n), other) {
		t.Error("a lease frees the place of its own counter, and once")
	}
}
