package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
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

// While the store is away what is held stays held: each replica goes on from as many places as it was told of, so
// all of them hold at most N and once what each had left. Whatever is given back meanwhile, at any replica, is free
// in the store when it is back, and all else is held there, in whatever order the replicas return.
func TestPlacesInAnOutage(t *testing.T) {
	t.Parallel()
	const n = 10
	for _, first := range []int{0, 1} {
		srv := storetest.Start(t)
		relays := []*relay{newRelay(t, srv.Addr, nil, false), newRelay(t, srv.Addr, nil, false)}
		var replicas []*Store
		for _, r := range relays {
			replicas = append(replicas, runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}}))
		}
		storetest.Eventually(t, "up", func() bool { return replicas[0].Up() && replicas[1].Up() })
		var c caller
		held := map[uint64]bool{}
		take := func(s *Store) uint64 {
			lease := c.take(t, s, spot(1, n))
			if lease > 0 {
				if held[lease] {
					t.Fatalf("the lease %d was given twice", lease)
				}
				held[lease] = true
			}
			return lease
		}
		give := func(s *Store, lease uint64) bool {
			delete(held, lease)
			return c.give(t, s, spot(1, n), lease)
		}
		other := uint64(0)
		for name := "s1{1}_x"; other == 0 || script.IsLease(name, other) || script.IsLease(name, other+1); { // one in 128 may be
			other = c.take(t, replicas[0], spot(2, limiter.MaxLog))
		}
		early := []uint64{take(replicas[0]), take(replicas[1]), take(replicas[1]), take(replicas[0])}
		for _, r := range relays {
			r.cut(true)
		}
		storetest.Eventually(t, "away", func() bool {
			for _, s := range replicas {
				_ = c.used(t, s, spot(1, n))
			}
			return !replicas[0].Up() && !replicas[1].Up()
		})
		most := n + (n - 4) + (n - 3) // the second replica was told of three
		var late []uint64
		for range n {
			for _, s := range replicas {
				if lease := take(s); lease > 0 {
					late = append(late, lease)
				}
			}
		}
		if len(held) > most || len(late) != n-4+n-3 {
			t.Errorf("%d places are held, %d of them given in the outage, want %d and %d", len(held), len(late), most, n-4+n-3)
		}
		// What is given back is free once, wherever that is, and nobody else's place is.
		if give(replicas[0], other) || give(replicas[0], other+1) || !give(replicas[1], early[0]) || give(replicas[1], early[0]) || !give(replicas[0], late[0]) || !give(replicas[0], late[1]) {
			t.Error("a lease frees a place of its own counter, and once")
		}
		if a, b := take(replicas[0]), take(replicas[0]); a == 0 || b == 0 || take(replicas[0]) != 0 {
			t.Error("the first replica has as many places as were given back there")
		}
		relays[first].cut(false)
		storetest.Eventually(t, "one is up", replicas[first].Up)
		for _, lease := range late[2:4] { // of either replica: the store may not know of it yet
			give(replicas[first], lease)
		}
		relays[1-first].cut(false)
		storetest.Eventually(t, "both are up", replicas[1-first].Up)
		for _, s := range replicas {
			if got := c.used(t, s, spot(1, 100)); got != len(held) {
				t.Errorf("replica %d first: the store holds %d places, want the %d that nobody gave back", first, got, len(held))
			}
		}
		if take(replicas[0]) != 0 {
			t.Error("a place was given beyond the limit when the store was back")
		}
		for lease := range held {
			if !give(replicas[first], lease) {
				t.Errorf("replica %d first: the lease %d is not held", first, lease)
			}
		}
		if got := c.used(t, replicas[0], spot(1, n)); got != 0 {
			t.Errorf("replica %d first: %d places are held when all were given back", first, got)
		}
		if replicas[0].owing()+replicas[1].owing() != 0 {
			t.Error("something is owed yet")
		}
	}
}
