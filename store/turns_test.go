package store

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A call that is cancelled while it is held gives its turn back if it is the newest, and only then.
func TestCancel(t *testing.T) {
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: at(srv)})
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
		c := hit(uint64(len(name)), p)
		c.Hits = hits
		var first, held, newest, after caller
		for _, each := range []*caller{&first, &held, &newest} {
			if err := each.askWithin(s, time.Minute, c); err != nil || each.b.Denied {
				t.Fatal(name, err, each.b.Denied)
			}
		}
		now := limiter.Time(time.Now().UnixNano())
		wait := newest.b.Wait
		s.Cancel(now, &held.b, held.names) // another waits behind it
		s.Cancel(now, &newest.b, newest.names)
		storetest.Eventually(t, name+": the newest turn is free again", func() bool {
			look := c
			look.Hits = 0
			return after.askWithin(s, time.Minute, look) == nil && after.b.Decisions[0].Reset < wait
		})
		if err := after.askWithin(s, time.Minute, c); err != nil || after.b.Denied {
			t.Fatal(name, err, after.b.Denied)
		}
		if got := after.b.Wait; got > wait || got < wait-10*time.Second {
			t.Errorf("%s: waits %v, want the turn of the one that was cancelled, %v", name, got, wait)
		}
	}
}

// A counter that is reset is as new, whatever it counts by.
func TestReset(t *testing.T) {
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: at(srv), Fallback: Error})
	storetest.Eventually(t, "up", s.Up)
	for n, same := range counters {
		p := same[0]
		if p.Limit == 0 || p.Window < time.Minute {
			continue
		}
		c := hit(uint64(n+100), p)
		c.Hits = p.Capacity()
		var a caller
		for range 2 {
			if err := a.askWithin(s, time.Minute, c); err != nil || a.b.Decisions[0].Over || a.b.Decisions[0].Before != 0 {
				t.Fatalf("counter %d: decided %+v, %v", n, a.b.Decisions, err)
			}
			used, err := reset(s, p, a.names[0])
			if err != nil || used == 0 || used > c.Hits {
				t.Errorf("counter %d: %d of %d used, %v", n, used, c.Hits, err)
			}
		}
	}
	srv.Kill()
	storetest.Eventually(t, "away", func() bool {
		var a caller
		_ = a.ask(s, hit(1, plenty))
		return !s.Up()
	})
	if _, err := reset(s, plenty, []byte("s1{1}t1")); !errors.Is(err, ErrAway) {
		t.Errorf("reset answered %v, want %v", err, ErrAway)
	}
}
