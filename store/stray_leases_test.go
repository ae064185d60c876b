package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A fate of a request whose caller has the fallback's answer.
type lateOutcome string

const (
	replied   lateOutcome = "the reply comes"
	replyLost lateOutcome = "the store runs it, and the connection ends without a reply"
	neverRun  lateOutcome = "the connection ends before the store runs it"
)

// startLate has s decide charges whose deadline comes before the reply, which does not come before the relay lets it. Unless
// it is never run, it waits until the store has run it. It returns the lease that the caller has of the first, 0 for none.
func (c *caller) startLate(tb testing.TB, s *Store, r *relay, how lateOutcome, hasRun func() bool, charges ...limiter.Charge) uint64 {
	tb.Helper()
	sh := s.main.shardOf(0)
	r.holdBoth(how == neverRun)
	r.holdReplies(true)
	if done, err := c.start(s, 0, charges...); done || err != nil {
		tb.Fatal(done, err)
	}
	storetest.Eventually(tb, "it is sent", func() bool {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.inFlight > 0
	})
	if how != neverRun {
		storetest.Eventually(tb, "the store has run it", hasRun)
	}
	sh.mu.Lock()
	late := sh.removeLateLocked(clock().Add(time.Hour))
	sh.mu.Unlock()
	sh.fallBack(late)
	if err := <-c.decided; err != nil {
		if !errors.Is(err, ErrUnavailable) {
			tb.Fatal(err)
		}
		return 0
	}
	return c.b.Lease(0)
}

// finishLate lets the fate of a late request of s come.
func (r *relay) finishLate(tb testing.TB, s *Store, how lateOutcome) {
	tb.Helper()
	if how != replied {
		r.cut(true)
		storetest.Eventually(tb, "away", func() bool { return !s.Up() })
	}
	r.holdBoth(false)
	r.holdReplies(false)
	if how != replied {
		r.cut(false)
	}
}

// What the store holds for a request whose deadline came before the reply is the caller's if the fallback has given the
// lease, and free if it has not, whatever becomes of the request: places and reservations, with each fallback.
func TestStrayLeasesAreReleased(t *testing.T) {
	t.Parallel()
	for _, fallback := range []Fallback{Local, Error, Allow, Deny} {
		t.Run(string(fallback), func(t *testing.T) {
			t.Parallel()
			srv := storetest.Start(t)
			r := newRelay(t, srv.Addr, nil, false)
			s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Fallback: fallback, Timeout: time.Minute, DialTimeout: time.Minute})
			other := runStore(t, Options{Server: serverAt(srv), Fallback: Deny})
			storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
			var c, o caller
			counter := uint64(0)
			for _, how := range []lateOutcome{replied, replyLost, neverRun} {
				for _, full := range []bool{false, true} { // as this replica was told last
					for kind, charge := range leaseCharges() {
						counter++
						charge.ID = oneHit(counter, charge.Policy).ID
						text := fmt.Sprintf("%s, %s, full %v", how, kind, full)
						held := func() uint64 { return o.heldHits(t, other, charge) }
						if full {
							lease := o.acquireSlot(t, other, charge)
							c.heldHits(t, s, charge)
							o.returnLease(t, other, charge, lease)
						}
						lease := c.startLate(t, s, r, how, func() bool { return held() > 0 }, charge)
						if want := fallback == Local && !full; (lease > 0) != want {
							t.Fatalf("%s: the fallback gave the lease %d, want one: %v", text, lease, want)
						}
						r.finishLate(t, s, how)
						storetest.Eventually(t, text+": up", s.Up)
						if lease > 0 {
							storetest.Eventually(t, text+": what the caller has is held", func() bool { return held() == charge.Hits && s.unsyncedCounters() == 0 })
							c.returnLease(t, s, charge, lease)
						}
						storetest.Eventually(t, text+": nothing is held", func() bool { return held() == 0 && s.unsyncedCounters() == 0 })
					}
				}
			}
		})
	}
}

// leaseCharges are charges that take all there is.
func leaseCharges() map[string]limiter.Charge {
	all := map[string]limiter.Charge{"place": slotCharge(1, 1)}
	for n, p := range reservingPolicies(true) {
		charge := oneHit(1, p)
		charge.Hits, charge.Reserve = p.Capacity(), true
		all[fmt.Sprintf("reservation %d", n)] = charge
	}
	return all
}

// heldHits returns what is held of a counter.
func (c *caller) heldHits(tb testing.TB, s *Store, charge limiter.Charge) uint64 {
	tb.Helper()
	charge.Hits = 0
	must.OK(tb, c.ask(s, charge))
	return c.b.Decisions[0].Before
}

// returnLease brings a lease back, of a request that has cost nothing.
func (c *caller) returnLease(tb testing.TB, s *Store, charge limiter.Charge, lease uint64) {
	tb.Helper()
	charge.Hits, charge.Refund, charge.Reserve = lease, true, false
	must.OK(tb, c.ask(s, charge))
}

// A store that ends gives back first what the store holds for callers that have been denied, over the connection that it
// has or another.
func TestStrayLeasesAtShutdown(t *testing.T) {
	t.Parallel()
	for _, how := range []lateOutcome{replied, replyLost} {
		srv := storetest.Start(t)
		r := newRelay(t, srv.Addr, nil, false)
		s := newStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Fallback: Deny, Timeout: time.Minute, DialTimeout: time.Minute})
		s.flushBound = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
		}()
		other := runStore(t, Options{Server: serverAt(srv), Fallback: Deny})
		storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
		var c, o caller
		all := leaseCharges()
		for _, kind := range []string{"place", "reservation 0"} { // as many as are under way at once
			charge := all[kind]
			if lease := c.startLate(t, s, r, how, func() bool { return o.heldHits(t, other, charge) > 0 }, charge); lease > 0 {
				t.Fatal("the fallback gave a lease")
			}
		}
		cancel()
		storetest.Eventually(t, "it is ending", func() bool { return !s.Up() })
		r.finishLate(t, s, how)
		<-ended
		for kind, charge := range all {
			if held := o.heldHits(t, other, charge); held > 0 {
				t.Errorf("%s: %d held of %s after the end", how, held, kind)
			}
		}
	}
}

// What the fallback has given, and what was given back to another replica before the store could have it held, is not held after
// the store has run the start.
func TestStrayLeasesReleasedElsewhere(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Timeout: time.Minute, DialTimeout: time.Minute})
	other := runStore(t, Options{Server: serverAt(srv), Fallback: Deny})
	storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
	var c, o caller
	number := uint64(0)
	for _, how := range []lateOutcome{replied, replyLost} {
		for kind, charge := range leaseCharges() {
			number++
			charge.ID = oneHit(number, charge.Policy).ID
			if charge.Hits /= 2; charge.Hits == 0 {
				charge = slotCharge(number, 2)
			}
			first := o.acquireSlot(t, other, charge)
			c.heldHits(t, s, charge)
			lease := c.startLate(t, s, r, neverRun, nil, charge)
			if first == 0 || lease == 0 {
				t.Fatalf("%s: there are the leases %d and %d", kind, first, lease)
			}
			o.returnLease(t, other, charge, lease)
			if charged := o.b.Decisions[0].Charged; charged > 0 {
				t.Fatalf("%s: the store held %d for a start that it has not seen", kind, charged)
			}
			r.holdBoth(false) // the store runs the start, and its reply is kept back
			storetest.Eventually(t, "the store has run the start", func() bool { return o.heldHits(t, other, charge) == 2*charge.Hits })
			r.finishLate(t, s, how)
			storetest.Eventually(t, "up again", s.Up)
			storetest.Eventually(t, string(how)+": the other "+kind+" alone is held", func() bool { return o.heldHits(t, other, charge) == charge.Hits && s.unsyncedCounters() == 0 })
			if o.returnLease(t, other, charge, first); o.b.Decisions[0].Charged != charge.Hits {
				t.Errorf("%s, %s: another's was freed", how, kind)
			}
		}
	}
}

// What a part's fallback took under a lease is given back when another part denies the request, though the store is there by
// then and is charged with nothing else.
func TestLeasesOfDeniedPartsAreReleased(t *testing.T) {
	t.Parallel()
	first, second := storetest.Start(t), storetest.Start(t)
	r, slow := newRelay(t, first.Addr, nil, false), newRelay(t, second.Addr, nil, false)
	seconds := redis.Server{Network: "tcp", Address: slow.addr}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, PerSecond: &seconds, Timeout: time.Minute, DialTimeout: time.Minute, PerSecondDialTimeout: time.Minute})
	other := runStore(t, Options{Server: serverAt(first), Fallback: Deny})
	storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
	var c, o caller
	place, denied := slotCharge(1, 3), oneHit(2, &limiter.Policy{Algorithm: limiter.FixedWindow, Window: time.Second})
	slow.holdReplies(true)
	r.cut(true)
	storetest.Eventually(t, "away", func() bool { return !s.main.isUp() })
	if done, err := c.start(s, 0, place, denied); done || err != nil {
		t.Fatal(done, err)
	}
	r.cut(false)
	storetest.Eventually(t, "the place is held in the store", func() bool { return s.main.isUp() && s.unsyncedCounters() == 0 && o.usedHits(t, other, place) == 1 })
	slow.holdReplies(false)
	if err := <-c.decided; err != nil || !c.b.Denied {
		t.Fatalf("decided %+v, %v, want a denial", c.b.Decisions, err)
	}
	storetest.Eventually(t, "the place is free", func() bool { return o.usedHits(t, other, place) == 0 })
}
