//go:build more

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

// A lateOutcome is the outcome of a request whose caller got the fallback.
type lateOutcome string

const (
	replied   lateOutcome = "the reply arrives"
	replyLost lateOutcome = "the store runs it, and the connection ends without a reply"
	neverRun  lateOutcome = "the connection ends before the store runs it"
)

// startLate starts a request whose deadline passes before the relay forwards the reply. Except for
// neverRun, it waits until the store has run the request. It returns the caller's lease for the
// first charge, or 0.
func (c *caller) startLate(tb testing.TB, s *Store, r *relay, how lateOutcome, hasRun func() bool, charges ...limiter.Charge) uint64 {
	tb.Helper()
	sh := s.main.shardOf(0)
	r.pause(how == neverRun)
	r.pauseReplies(true)
	if done, err := c.start(s, 0, charges...); done || err != nil {
		tb.Fatal(done, err)
	}
	storetest.Eventually(tb, "the request is sent", sh.allSent)
	if how != neverRun {
		storetest.Eventually(tb, "the store has run the request", hasRun)
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

// allSent reports whether requests wait for a reply, and none waits to be sent. Other messages in
// flight, such as a release whose reply is being read, do not matter.
func (sh *shard) allSent() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for req := sh.open.first; req != nil; req = req.next {
		if !req.sent {
			return false
		}
	}
	return sh.open.first != nil
}

// finishLate causes the outcome of a late request of s.
func (r *relay) finishLate(tb testing.TB, s *Store, how lateOutcome) {
	tb.Helper()
	if how != replied {
		r.setBlocked(true)
		storetest.Eventually(tb, "unavailable", func() bool { return !s.Up() })
	}
	r.pause(false)
	r.pauseReplies(false)
	if how != replied {
		r.setBlocked(false)
	}
}

// After a request whose deadline passed before the reply, the store holds only the lease that the
// caller got from the fallback, if any, whatever the outcome: for permits and reservations, with
// each fallback.
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
				for _, full := range []bool{false, true} { // whether all permits were held at this replica's last reply
					for kind, charge := range leaseCharges() {
						counter++
						charge.ID = oneHit(counter, charge.Policy).ID
						text := fmt.Sprintf("%s, %s, full %v", how, kind, full)
						held := func() uint64 { return o.heldHits(t, other, charge) }
						if full {
							lease := o.acquirePermit(t, other, charge)
							c.heldHits(t, s, charge)
							o.returnLease(t, other, charge, lease)
						}
						lease := c.startLate(t, s, r, how, func() bool { return held() > 0 }, charge)
						if want := fallback == Local && !full; (lease > 0) != want {
							t.Fatalf("%s: the fallback granted the lease %d, want one: %v", text, lease, want)
						}
						r.finishLate(t, s, how)
						storetest.Eventually(t, text+": up", s.Up)
						if lease > 0 {
							storetest.Eventually(t, text+": the lease of the caller is held", func() bool { return held() == charge.Hits && s.unsyncedCounters() == 0 })
							c.returnLease(t, s, charge, lease)
						}
						storetest.Eventually(t, text+": nothing is held", func() bool { return held() == 0 && s.unsyncedCounters() == 0 })
					}
				}
			}
		})
	}
}

// leaseCharges returns charges that use the complete limit.
func leaseCharges() map[string]limiter.Charge {
	all := map[string]limiter.Charge{"permit": permitCharge(1, 1)}
	for n, p := range reservingPolicies(true) {
		charge := oneHit(1, p)
		charge.Hits, charge.Reserve = p.Capacity(), true
		all[fmt.Sprintf("reservation %d", n)] = charge
	}
	return all
}

// heldHits returns the held permits or hits of a counter.
func (c *caller) heldHits(tb testing.TB, s *Store, charge limiter.Charge) uint64 {
	tb.Helper()
	charge.Hits = 0
	must.OK(tb, c.decide(s, charge))
	return c.b.Decisions[0].Before
}

// returnLease returns a lease, without a cost.
func (c *caller) returnLease(tb testing.TB, s *Store, charge limiter.Charge, lease uint64) {
	tb.Helper()
	charge.Hits, charge.Refund, charge.Reserve = lease, true, false
	must.OK(tb, c.decide(s, charge))
}

// Before a store ends, it releases the leases that it has granted to denied callers, over its
// connection or a new one.
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
		for _, kind := range []string{"permit", "reservation 0"} { // one for each sender
			charge := all[kind]
			if lease := c.startLate(t, s, r, how, func() bool { return o.heldHits(t, other, charge) > 0 }, charge); lease > 0 {
				t.Fatal("the fallback granted a lease")
			}
		}
		cancel()
		storetest.Eventually(t, "the store is shutting down", func() bool { return !s.Up() })
		r.finishLate(t, s, how)
		<-ended
		for kind, charge := range all {
			if held := o.heldHits(t, other, charge); held > 0 {
				t.Errorf("%s: %d hits of the %s are held after the shutdown", how, held, kind)
			}
		}
	}
}

// If a lease of the fallback is returned at another replica before the store has run the request,
// nothing is held in the end.
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
				charge = permitCharge(number, 2)
			}
			first := o.acquirePermit(t, other, charge)
			c.heldHits(t, s, charge)
			lease := c.startLate(t, s, r, neverRun, nil, charge)
			if first == 0 || lease == 0 {
				t.Fatalf("%s: the leases are %d and %d", kind, first, lease)
			}
			o.returnLease(t, other, charge, lease)
			if charged := o.b.Decisions[0].Charged; charged > 0 {
				t.Fatalf("%s: the store held %d hits for a start that it has not run", kind, charged)
			}
			r.pause(false) // the store runs the request, and the reply waits
			storetest.Eventually(t, "the store has run the start", func() bool { return o.heldHits(t, other, charge) == 2*charge.Hits })
			r.finishLate(t, s, how)
			storetest.Eventually(t, "up again", s.Up)
			storetest.Eventually(t, string(how)+": only the other "+kind+" is held", func() bool { return o.heldHits(t, other, charge) == charge.Hits && s.unsyncedCounters() == 0 })
			if o.returnLease(t, other, charge, first); o.b.Decisions[0].Charged != charge.Hits {
				t.Errorf("%s, %s: the other lease was released", how, kind)
			}
		}
	}
}

// If another part denies a request, the lease that the fallback granted to a part is released, even
// if the store has recovered by then and has nothing else to sync.
func TestLeasesOfDeniedPartsAreReleased(t *testing.T) {
	t.Parallel()
	first, second := storetest.Start(t), storetest.Start(t)
	r, slow := newRelay(t, first.Addr, nil, false), newRelay(t, second.Addr, nil, false)
	seconds := redis.Server{Network: "tcp", Address: slow.addr}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, PerSecond: &seconds, Timeout: time.Minute, DialTimeout: time.Minute, PerSecondDialTimeout: time.Minute})
	other := runStore(t, Options{Server: serverAt(first), Fallback: Deny})
	storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
	var c, o caller
	permit, denied := permitCharge(1, 3), oneHit(2, &limiter.Policy{Algorithm: limiter.FixedWindow, Window: time.Second})
	slow.pauseReplies(true)
	r.setBlocked(true)
	storetest.Eventually(t, "unavailable", func() bool { return !s.main.isUp() })
	if done, err := c.start(s, 0, permit, denied); done || err != nil {
		t.Fatal(done, err)
	}
	r.setBlocked(false)
	storetest.Eventually(t, "the permit is held in the store", func() bool { return s.main.isUp() && s.unsyncedCounters() == 0 && o.usedHits(t, other, permit) == 1 })
	slow.pauseReplies(false)
	if err := <-c.decided; err != nil || !c.b.Denied {
		t.Fatalf("decided %+v, %v, want a denial", c.b.Decisions, err)
	}
	storetest.Eventually(t, "the permit is free", func() bool { return o.usedHits(t, other, permit) == 0 })
}
