//go:build more

package store

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A delayed hit of a cancelled request is undone only if it is the newest.
func TestCancel(t *testing.T) {
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv), Clock: frozenClock, at: frozenTime}) // so no delay ends during the test
	storetest.Eventually(t, "up", s.Up)
	for name, p := range map[string]*limiter.Policy{
		"coarse": {Algorithm: limiter.LeakyBucket, Limit: 1, Window: 20 * time.Second, MaxWait: time.Minute, MaxWaiting: 3},
		"fine": {
			Algorithm: limiter.LeakyBucket, Limit: 3_000_000, Window: time.Second, MaxWait: time.Minute,
			MaxWaiting: 4_000_000_000,
		},
	} {
		hits := uint64(1)
		if name == "fine" {
			hits = 50_000_000 // 17 seconds
		}
		c := oneHit(uint64(len(name)), p)
		c.Hits = hits
		first, held, newest, after := caller{clock: frozenClock}, caller{clock: frozenClock}, caller{clock: frozenClock}, caller{clock: frozenClock}
		for _, each := range []*caller{&first, &held, &newest} {
			if err := each.decideWithin(s, time.Minute, c); err != nil || each.b.Denied {
				t.Fatal(name, err, each.b.Denied)
			}
		}
		wait := newest.b.Wait
		s.Cancel(frozenTime(), &held.b, held.names) // the next hit waits behind it
		s.Cancel(frozenTime(), &newest.b, newest.names)
		storetest.Eventually(t, name+": the newest delayed hit is undone", func() bool {
			peek := c
			peek.Hits = 0
			return after.decideWithin(s, time.Minute, peek) == nil && after.b.Decisions[0].Reset <= wait
		})
		if err := after.decideWithin(s, time.Minute, c); err != nil || after.b.Denied {
			t.Fatal(name, err, after.b.Denied)
		}
		if got := after.b.Wait; got != wait {
			t.Errorf("%s: the delay is %v, want the delay of the cancelled hit, %v", name, got, wait)
		}
	}
}

// A counter that was reset is empty, with every algorithm.
func TestReset(t *testing.T) {
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv), Fallback: Error, Clock: frozenClock, at: frozenTime}) // so no window ends before the reset
	storetest.Eventually(t, "up", s.Up)
	for n, same := range counters {
		p := same[0]
		if p.Limit == 0 || p.Window < time.Minute {
			continue
		}
		c := oneHit(uint64(n+100), p)
		c.Hits = p.Capacity()
		a := caller{clock: frozenClock}
		for range 2 {
			if err := a.decideWithin(s, time.Minute, c); err != nil || a.b.Decisions[0].Over || a.b.Decisions[0].Before != 0 {
				t.Fatalf("counter %d: decided %+v, %v", n, a.b.Decisions, err)
			}
			used, err := reset(s, p, a.names[0])
			if err != nil || used == 0 || used > c.Hits {
				t.Errorf("counter %d: Reset = %d used hits, want %d, %v", n, used, c.Hits, err)
			}
		}
	}
	srv.Kill()
	storetest.Eventually(t, "unavailable", func() bool {
		var a caller
		_ = a.decide(s, oneHit(1, hugeBucket))
		return !s.Up()
	})
	if _, err := reset(s, hugeBucket, []byte("s1{1}t1")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Reset = %v, want %v", err, ErrUnavailable)
	}
}

// Without the store, cancelled delayed hits and the charges of a part that another part denies are
// subtracted from the unsynced hits, as refunds are.
func TestRefundsOfUnsyncedHits(t *testing.T) {
	t.Parallel()
	first, second := storetest.Start(t), storetest.Start(t)
	r, slow := newRelay(t, first.Addr, nil, false), newRelay(t, second.Addr, nil, false)
	seconds := redis.Server{Network: "tcp", Address: slow.addr}
	o := &recorder{}
	s := runStore(t, Options{
		Server: redis.Server{Network: "tcp", Address: r.addr}, PerSecond: &seconds, Observer: o, Timeout: time.Minute, DialTimeout: time.Minute, PerSecondDialTimeout: time.Minute,
		Clock: frozenClock, at: frozenTime, // so no delay ends during the test
	})
	storetest.Eventually(t, "up", s.Up)
	delaying := &limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 1, Window: time.Minute, MaxWait: time.Hour, MaxWaiting: 9}
	delayed, group := oneHit(1, delaying), []limiter.Charge{oneHit(2, hugeFixedWindow), oneHit(3, &limiter.Policy{Algorithm: limiter.FixedWindow, Window: time.Second})}
	slow.pauseReplies(true)
	denied, c, cancelled := caller{clock: frozenClock}, caller{clock: frozenClock}, caller{clock: frozenClock}
	if done, err := denied.start(s, 0, group...); done || err != nil {
		t.Fatal(done, err)
	}
	sh := s.main.shardOf(0)
	storetest.Eventually(t, "the first part is decided", func() bool {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.open.first == nil
	})
	r.setBlocked(true)
	storetest.Eventually(t, "unavailable", func() bool { return !s.main.isUp() })
	for _, charge := range []limiter.Charge{group[0], delayed} {
		if err := c.decideWithin(s, time.Hour, charge); err != nil || c.b.Denied {
			t.Fatal(err, c.b.Denied)
		}
	}
	if err := cancelled.decideWithin(s, time.Hour, delayed); err != nil || cancelled.b.Decisions[0].Wait == 0 {
		t.Fatal(err, cancelled.b.Decisions)
	}
	s.Cancel(frozenTime(), &cancelled.b, cancelled.names)
	slow.pauseReplies(false)
	if err := <-denied.decided; err != nil || !denied.b.Denied {
		t.Fatalf("decided %+v, %v, want a denial", denied.b.Decisions, err)
	}
	r.setBlocked(false)
	storetest.Eventually(t, "all hits are synced", func() bool { return s.Up() && s.unsyncedCounters() == 0 })
	for _, charge := range []limiter.Charge{group[0], delayed} {
		if got := c.usedHits(t, s, charge); got != 1 {
			t.Errorf("counter %d: the store has %d hits, want 1", charge.ID.Lo, got)
		}
	}
	if o.syncedHits() != 1 {
		t.Errorf("%d hits were charged late, want only the hit of the delayed request", o.syncedHits())
	}
}
