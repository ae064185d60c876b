//go:build more

package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A release of a lease, or a reset, may still wait for the store when its caller has given up. It
// must not refer to the policies of the request, whose memory is reused for overrides and rows.
func TestNoPolicyOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Timeout: time.Minute})
	storetest.Eventually(t, "up", s.Up)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	now := limiter.Time(time.Now().UnixNano())
	var c caller
	for _, p := range append(reservingPolicies(true), permitCharge(1, 5).Policy) {
		acquire, held := func() uint64 { return c.reserveHits(t, s, p, 60) }, func() bool { return c.usedAndReserved(t, s, p) > 0 }
		if p.Reserve == nil {
			acquire, held = func() uint64 { return c.acquirePermit(t, s, oneHit(1, p)) }, func() bool { return c.usedHits(t, s, oneHit(1, p)) > 0 }
		}
		if acquire() == 0 {
			t.Fatal("nothing can be reserved")
		}
		r.pause(true)
		s.Cancel(now, &c.b, c.names)
		if _, err := s.Reset(cancelled, now, &limiter.Batch{Charges: []limiter.Charge{{Policy: p}}}, [][]byte{[]byte("s1{another}_x")}, 0); err == nil {
			t.Error("a reset with a cancelled context succeeded")
		}
		sh, waiting := s.main.shardOf(0), 0
		sh.mu.Lock()
		for a := sh.open.first; a != nil; a = a.next {
			waiting++
			for _, charge := range a.batch.Charges {
				if charge.Policy == p || p.Reserve != nil && charge.Policy.Reserve == p.Reserve {
					t.Errorf("algorithm %d: a charge that waits for the store has the policy of the request", p.Algorithm)
				}
			}
		}
		sh.mu.Unlock()
		if waiting != 2 {
			t.Errorf("%d requests wait for the store, want the release and the reset", waiting)
		}
		r.pause(false)
		storetest.Eventually(t, "the reservation is released", func() bool { return !held() })
		srv.Must("FLUSHALL")
	}
}

// After a failed reset the unsynced hits of the counter are charged, even if nothing else requests
// a sync.
func TestUnsyncedHitsAfterAFailedReset(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	o := &recorder{}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o, Timeout: time.Minute, DialTimeout: time.Minute})
	storetest.Eventually(t, "up", s.Up)
	r.pauseReplies(true)
	charge, sh := oneHit(1, hugeFixedWindow), s.main.shardOf(0)
	s.addHits(t, charge, 3)
	failed := make(chan error, 1)
	go func() {
		_, err := reset(s, hugeFixedWindow, nameOf("s1", &charge))
		failed <- err
	}()
	storetest.Eventually(t, "the reset is sent", sh.allSent)
	sh.mu.Lock()
	late := sh.removeLateLocked(clock().Add(time.Hour)) // its deadline passes
	sh.mu.Unlock()
	sh.fallBack(late)
	if err := <-failed; !errors.Is(err, ErrUnavailable) {
		t.Fatalf("Reset = %v, want %v", err, ErrUnavailable)
	}
	r.pauseReplies(false)
	storetest.Eventually(t, "the hits are synced", func() bool { return o.syncedHits() == 3 && s.unsyncedCounters() == 0 })
}

// The fallback continues from a counter that was reset, with every algorithm.
func TestResetAndTheFallback(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}})
	storetest.Eventually(t, "up", s.Up)
	var all []limiter.Charge
	for n, same := range counters {
		p := same[0]
		if p.Limit == 0 || p.Window < time.Minute {
			continue
		}
		charge := oneHit(uint64(n+1), p)
		charge.Hits, charge.Reserve = p.Capacity(), p.Reserve != nil
		if p.Algorithm == limiter.Concurrency {
			charge.Hits = 1
		}
		all = append(all, charge)
		var c caller
		for {
			must.OK(t, c.decide(s, charge))
			if c.b.Decisions[0].Over {
				break
			}
		}
		now := limiter.Time(time.Now().UnixNano())
		if _, err := s.Reset(t.Context(), now, &limiter.Batch{Charges: []limiter.Charge{{ID: charge.ID, Policy: p}}}, c.names, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.setBlocked(true)
	storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
	for _, charge := range all {
		var c caller
		if err := c.decide(s, charge); err != nil || c.b.Decisions[0].Over {
			t.Errorf("counter %d, algorithm %d: decided %+v, %v, want an admitted hit", charge.ID.Lo, charge.Policy.Algorithm, c.b.Decisions, err)
		}
	}
}
