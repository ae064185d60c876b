//go:build more

package store

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// acquirePermit acquires a permit and returns its lease, or 0 if all permits are held.
func (c *caller) acquirePermit(tb testing.TB, s *Store, charge limiter.Charge) uint64 {
	tb.Helper()
	must.OK(tb, c.decide(s, charge))
	return c.b.Lease(0)
}

// releasePermit releases a lease and reports whether it was held.
func (c *caller) releasePermit(tb testing.TB, s *Store, charge limiter.Charge, lease uint64) bool {
	tb.Helper()
	charge.Hits, charge.Refund = lease, true
	must.OK(tb, c.decide(s, charge))
	return c.b.Decisions[0].Charged > 0
}

// During an outage held permits stay held. Each replica starts from the number in the store's last
// reply, so all replicas together grant at most N permits plus those that each replica knew to be
// free. After the outage the store holds exactly the leases that were not released, whichever
// replica released them and in whatever order the replicas recover.
func TestPermitsInAnOutage(t *testing.T) {
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
		acquire := func(s *Store) uint64 {
			lease := c.acquirePermit(t, s, permitCharge(1, n))
			if lease > 0 {
				if held[lease] {
					t.Fatalf("the lease %d was granted twice", lease)
				}
				held[lease] = true
			}
			return lease
		}
		give := func(s *Store, lease uint64) bool {
			delete(held, lease)
			return c.releasePermit(t, s, permitCharge(1, n), lease)
		}
		other := uint64(0)
		for name := "s1{1}_x"; other == 0 || script.IsLease(name, other) || script.IsLease(name, other+1); { // one number in 128 is a lease of the counter
			other = c.acquirePermit(t, replicas[0], permitCharge(2, limiter.MaxLog))
		}
		early := []uint64{acquire(replicas[0]), acquire(replicas[1]), acquire(replicas[1]), acquire(replicas[0])}
		for _, r := range relays {
			r.setBlocked(true)
		}
		storetest.Eventually(t, "unavailable", func() bool {
			for _, s := range replicas {
				_ = c.usedHits(t, s, permitCharge(1, n))
			}
			return !replicas[0].Up() && !replicas[1].Up()
		})
		most := n + (n - 4) + (n - 3) // the second replica knows of three held permits
		var late []uint64
		for range n {
			for _, s := range replicas {
				if lease := acquire(s); lease > 0 {
					late = append(late, lease)
				}
			}
		}
		if len(held) > most || len(late) != n-4+n-3 {
			t.Errorf("%d permits are held, %d of them granted in the outage, want %d and %d", len(held), len(late), most, n-4+n-3)
		}
		// Any replica releases a lease of its counter, once, and no other lease.
		if give(replicas[0], other) || give(replicas[0], other+1) || !give(replicas[1], early[0]) || give(replicas[1], early[0]) || !give(replicas[0], late[0]) || give(replicas[0], late[0]) || !give(replicas[0], late[1]) {
			t.Error("a lease did not release exactly one permit of its own counter")
		}
		if a, b := acquire(replicas[0]), acquire(replicas[0]); a == 0 || b == 0 || acquire(replicas[0]) != 0 {
			t.Error("the number of free permits at the first replica differs from the number of permits released there")
		}
		relays[first].setBlocked(false)
		storetest.Eventually(t, "one replica has a connection", replicas[first].Up)
		for _, lease := range late[2:4] { // leases of both replicas; the store may not know them yet
			give(replicas[first], lease)
		}
		relays[1-first].setBlocked(false)
		storetest.Eventually(t, "both replicas have a connection", replicas[1-first].Up)
		for _, s := range replicas {
			if got := c.usedHits(t, s, permitCharge(1, 100)); got != len(held) {
				t.Errorf("replica %d first: the store holds %d permits, want the %d that were not released", first, got, len(held))
			}
		}
		if acquire(replicas[0]) != 0 {
			t.Error("a permit beyond the limit was granted after the recovery")
		}
		for lease := range held {
			if !give(replicas[first], lease) {
				t.Errorf("replica %d first: the lease %d is not held", first, lease)
			}
		}
		if got := c.usedHits(t, replicas[0], permitCharge(1, n)); got != 0 {
			t.Errorf("replica %d first: %d permits are held after all were released", first, got)
		}
		if replicas[0].unsyncedCounters()+replicas[1].unsyncedCounters() != 0 {
			t.Error("there are unsynced leases")
		}
	}
}

// reservingPolicies returns policies with a limit of 100 hits that can be reserved.
func reservingPolicies(release bool) []*limiter.Policy {
	r := limiter.NewReserve(10, time.Hour, release)
	return []*limiter.Policy{
		{Algorithm: limiter.FixedWindow, Limit: 100, Window: limiter.MaxWindow, Reserve: r},
		{Algorithm: limiter.SlidingWindow, Limit: 100, Window: limiter.MaxWindow, SubWindows: 10, Reserve: r, CountRefused: true},
		{Algorithm: limiter.TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: 100, Reserve: r},
	}
}

// reserveHits reserves hits and returns the lease, or 0 if the limit is reached.
func (c *caller) reserveHits(tb testing.TB, s *Store, p *limiter.Policy, hits uint64) uint64 {
	tb.Helper()
	charge := oneHit(1, p)
	charge.Hits, charge.Reserve = hits, true
	return c.acquirePermit(tb, s, charge)
}

// settleLease returns a lease, and charges the cost of the request, in two charges, unless it is
// negative. It returns the hits that were held.
func (c *caller) settleLease(tb testing.TB, s *Store, p *limiter.Policy, lease uint64, cost int) uint64 {
	tb.Helper()
	charges := []limiter.Charge{oneHit(1, p), oneHit(1, p), oneHit(1, p)}
	charges[0].Hits, charges[0].Refund = lease, true
	if charges[1].Group, charges[2].Group = 1, 2; cost < 0 {
		charges = charges[:1]
	} else {
		charges[1].Hits, charges[2].Hits = uint64(cost-cost/2), uint64(cost/2)
	}
	must.OK(tb, c.decide(s, charges...))
	return c.b.Decisions[0].Charged
}

// usedAndReserved returns the sum of used and reserved hits.
func (c *caller) usedAndReserved(tb testing.TB, s *Store, p *limiter.Policy) uint64 {
	tb.Helper()
	charge := oneHit(1, p)
	charge.Hits, charge.Reserve = 0, true
	must.OK(tb, c.decide(s, charge))
	return c.b.Decisions[0].Before
}

// During an outage reservations stay held, and charged hits are unsynced. Afterwards the store has
// the reservations that were not settled meanwhile.
func TestReservationsInAnOutage(t *testing.T) {
	t.Parallel()
	for n, p := range reservingPolicies(false) {
		srv := storetest.Start(t)
		relays := []*relay{newRelay(t, srv.Addr, nil, false), newRelay(t, srv.Addr, nil, false)}
		var s []*Store
		for _, r := range relays {
			s = append(s, runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}}))
		}
		storetest.Eventually(t, "up", func() bool { return s[0].Up() && s[1].Up() })
		var c caller
		before, other := c.reserveHits(t, s[0], p, 30), c.reserveHits(t, s[1], p, 20)
		for i := range relays {
			c.usedAndReserved(t, s[i], p) // each replica sees both reservations
			relays[i].setBlocked(true)
		}
		storetest.Eventually(t, "unavailable", func() bool {
			c.usedAndReserved(t, s[0], p)
			c.usedAndReserved(t, s[1], p)
			return !s[0].Up() && !s[1].Up()
		})
		during := c.reserveHits(t, s[0], p, 30)
		if c.usedAndReserved(t, s[0], p) != 80 || during == 0 || c.reserveHits(t, s[0], p, 21) != 0 {
			t.Errorf("%d: with 50 of 100 hits held, want a reservation of 30 hits, and no further one of 21", n)
		}
		ended := c.reserveHits(t, s[1], p, 50)
		if c.settleLease(t, s[1], p, ended, 8); ended == 0 || c.usedAndReserved(t, s[1], p) != 50+8 {
			t.Errorf("%d: %d hits are used or held, want those that the store held plus 8", n, c.usedAndReserved(t, s[1], p))
		}
		c.settleLease(t, s[1], p, before, 7) // the other replica granted it
		relays[0].setBlocked(false)
		relays[1].setBlocked(false)
		storetest.Eventually(t, "up", func() bool { return s[0].Up() && s[1].Up() })
		if got := c.usedAndReserved(t, s[0], p); got != 20+30+8+7 {
			t.Errorf("%d: %d hits are used or held, want the 50 that have not been settled plus 15", n, got)
		}
		if c.settleLease(t, s[1], p, during, 1) != 30 || c.settleLease(t, s[0], p, other, 2) != 20 || c.settleLease(t, s[0], p, before, -1) != 0 {
			t.Errorf("%d: the reservation was not settled exactly once", n)
		}
		if got := c.usedAndReserved(t, s[0], p); got != 8+7+3 {
			t.Errorf("%d: %d hits are used or held, want 18", n, got)
		}
		srv.Kill()
	}
}

// If another program wrote the key of reservations, the fallback decides, and the key does not
// change.
func TestForeignReservations(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv), Fallback: Error})
	storetest.Eventually(t, "up", s.Up)
	for _, wrote := range [][]string{{"SET", "letters"}, {"RPUSH", "1"}, {"HSET", "s", "letters"}, {"HSET", "s", "-1 5"}, {"HSET", "s", "1e9 5"}} {
		for n, p := range reservingPolicies(false) {
			charge := oneHit(1, p)
			key := string(nameOf("s1", &charge)) + "xh"
			if script.IsFixed(p) {
				key = string(nameOf("s1", &charge)) + "h"
			}
			srv.Must(append([]string{wrote[0], key}, wrote[1:]...)...)
			before := srv.Must("DUMP", key)
			var c caller
			if charge.Reserve = true; !errors.Is(c.decide(s, charge), ErrUnavailable) {
				t.Errorf("%d, %q: decided %+v, want the fallback", n, wrote, c.b.Decisions)
			}
			if charge.Reserve = false; c.decide(s, charge) != nil {
				t.Errorf("%d, %q: the counter itself is not decided", n, wrote)
			}
			if srv.Must("DUMP", key) != before {
				t.Errorf("%d, %q: another program's key was changed", n, wrote)
			}
			srv.Must("FLUSHALL")
		}
	}
	// Invalid fields among valid reservations hold nothing.
	p := reservingPolicies(false)[0]
	srv.Must("HSET", "s1{1}_h", "s", "30 1", "letters", "letters", "600000000", "x 5")
	var c caller
	if lease := c.reserveHits(t, s, p, 100); lease == 0 || c.settleLease(t, s, p, 600000000, -1) != 0 || c.settleLease(t, s, p, lease, 1) != 100 {
		t.Error("invalid fields among reservations prevent new ones")
	}
}

// After an invalid reply to a charge with leases either the fallback decides or no permit is held.
// Nothing panics.
func TestInvalidLeasesInReplies(t *testing.T) {
	t.Parallel()
	held := script.NewLease("s1{1}_x", 0)
	for name, tt := range map[string]struct {
		says string
		bad  bool
	}{
		"no lease":                     {"*4\r\n:1795342320\r\n:1\r\n:1\r\n:5\r\n", true},
		"a lease in letters":           {"*5\r\n:1795342320\r\n:1\r\n:1\r\n:5\r\n$1\r\nx\r\n", true},
		"an invalid lease":             {"*5\r\n:1795342320\r\n:1\r\n:1\r\n:5\r\n:7\r\n", true},
		"a lease below 0":              {"*5\r\n:1795342320\r\n:1\r\n:1\r\n:5\r\n:-9\r\n", true},
		"a negative number of permits": {"*5\r\n:1795342320\r\n:1\r\n:1\r\n:-5\r\n:" + strconv.FormatUint(held, 10) + "\r\n", false},
		"more than the maximum":        {"*5\r\n:1795342320\r\n:1\r\n:1\r\n:9223372036854775807\r\n:" + strconv.FormatUint(held, 10) + "\r\n", false},
	} {
		o := &recorder{}
		s := runStore(t, Options{Observer: o, Fallback: Deny, Panicked: func(thrown any) { t.Errorf("%s: panicked: %v", name, thrown) }, Server: redis.Server{
			Network: "tcp", Address: newHostileServer(t, func(w io.Writer, command []string) bool {
				if text := strings.Join(command, " "); len(command) < 6 || strings.Contains(text, "s1{probe") {
					return replyWith("*3\r\n:1795342320\r\n:1\r\n:0\r\n")(w)
				}
				return replyWith(tt.says)(w)
			}).addr,
		}})
		storetest.Eventually(t, "up", s.Up)
		for _, refund := range []bool{false, true} {
			var c caller
			charge := permitCharge(1, 9)
			if charge.Refund = refund; refund {
				charge.Hits = held
			}
			if err := c.decide(s, charge); err != nil {
				t.Fatal(name, err)
			}
			if d := c.b.Decisions[0]; d.Charged > 1 || d.Remaining > 9 || d.Before > 1<<62 {
				t.Errorf("%s: decided %+v", name, d)
			}
		}
		if tt.bad {
			storetest.Eventually(t, name+" is counted as a bad reply", func() bool { return o.failuresOf(redis.Reply) > 0 })
		} else if o.decidedBy(byFallback) > 0 {
			t.Errorf("%s: decided by the fallback", name)
		}
	}
}

// If the deadline passes before the reply arrives, the caller has a lease of the fallback. That
// lease is synced, whether the reply arrives or the connection ends, and the store's own lease is
// released: exactly one permit is held. Cancelling a request releases its permit or reservation.
func TestLateLeases(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{true, false} {
		srv := storetest.Start(t)
		r := newRelay(t, srv.Addr, nil, false)
		s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Timeout: time.Minute})
		storetest.Eventually(t, "up", s.Up)
		r.pause(true)
		sh := s.main.shardOf(0)
		decided := make(replyChan, 1)
		b := limiter.Batch{Charges: []limiter.Charge{permitCharge(1, 9)}}
		if done, err := s.Decide(limiter.Time(time.Now().UnixNano()), &b, [][]byte{[]byte("s1{1}_x")}, decided); done || err != nil {
			t.Fatal(done, err)
		}
		storetest.Eventually(t, "the request is sent", func() bool {
			sh.mu.Lock()
			defer sh.mu.Unlock()
			return sh.inFlight == 1
		})
		sh.mu.Lock()
		late := sh.removeLateLocked(clock().Add(time.Hour)) // the deadline passes
		sh.mu.Unlock()
		sh.fallBack(late)
		if err := <-decided; err != nil || b.Lease(0) == 0 {
			t.Fatal(err, b.Lease(0))
		}
		if !arrives {
			r.setBlocked(true)
			storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
			r.setBlocked(false)
		}
		r.pause(false)
		storetest.Eventually(t, "up", s.Up)
		var c caller
		storetest.Eventually(t, "the store holds the permit", func() bool { return c.usedHits(t, s, permitCharge(1, 9)) == 1 })
		s.Cancel(limiter.Time(time.Now().UnixNano()), &b, [][]byte{[]byte("s1{1}_x")})
		storetest.Eventually(t, "the permit is released", func() bool { return c.usedHits(t, s, permitCharge(1, 9)) == 0 })
		if b.Lease(0) != 0 {
			t.Error("a cancelled request still has its lease")
		}
		for _, p := range reservingPolicies(false) {
			if c.reserveHits(t, s, p, 60) == 0 {
				t.Fatal("nothing can be reserved")
			}
			s.Cancel(limiter.Time(time.Now().UnixNano()), &c.b, c.names)
			storetest.Eventually(t, "the reservation is released", func() bool { return c.usedAndReserved(t, s, p) == 0 })
			srv.Must("FLUSHALL")
		}
		if n := s.unsyncedCounters(); n != 0 {
			t.Errorf("%d counters are still unsynced", n)
		}
	}
}

// While replies are late, a lease that the store granted releases one permit of the mirror, even if it
// is returned twice. The store may have released it, which is not known yet.
func TestLeaseReturnedTwiceBeforeReply(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Timeout: longTimeout})
	storetest.Eventually(t, "up", s.Up)
	var c caller
	lease := c.acquirePermit(t, s, permitCharge(1, 2))
	if c.acquirePermit(t, s, permitCharge(1, 2)) == 0 {
		t.Fatal("the second permit was not granted")
	}
	r.pauseReplies(true)
	var released []uint64
	for range 2 {
		charge := permitCharge(1, 2)
		charge.Hits, charge.Refund = lease, true
		must.OK(t, c.decideWithin(s, time.Millisecond, charge))
		released = append(released, c.b.Decisions[0].Charged)
	}
	r.pauseReplies(false)
	if released[0] != 1 || released[1] != 0 {
		t.Errorf("the returns released %d permits, want 1 and 0", released)
	}
	storetest.Eventually(t, "the store released one permit", func() bool { return c.usedHits(t, s, permitCharge(1, 2)) == 1 })
}
