package store

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// compareCounts holds what the store has of each of l's counters against what was admitted. Each hit whose
// answer came too late may have counted once more.
func (l *traffic) compareCounts(tb testing.TB, late int) {
	tb.Helper()
	var c caller
	over := 0
	for n := range l.admitted {
		look := oneHit(uint64(n+1), hugeFixedWindow)
		look.Hits = 0
		must.OK(tb, c.ask(l.s, look))
		got, want := int(c.b.Decisions[0].Before), int(l.admitted[n].Load())
		if got < want {
			tb.Errorf("counter %d has %d hits, fewer than the %d that were admitted", n+1, got, want)
		}
		over += got - want
	}
	if over > late {
		tb.Errorf("%d hits more than were admitted, want %d at most, which were answered too late", over, late)
	}
}

// Packets that are lost and sent again: what comes in time is decided by the store, and what comes too
// late counts once, whatever has become of its caller.
func TestPacketsLost(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	o := &recorder{}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o, Fallback: Deny, Timeout: time.Second})
	storetest.Eventually(t, "up", s.Up)
	l := newTraffic(t, s)
	for range 50 {
		l.waitForHits(t)
		r.holdBoth(true)
		storetest.Eventually(t, "something is kept back", r.isHolding)
		r.holdBoth(false)
	}
	for range 2 {
		l.waitForHits(t)
		r.holdBoth(true)
		storetest.Eventually(t, "away", func() bool { return !s.Up() })
		r.holdBoth(false)
		storetest.Eventually(t, "up again", s.Up)
	}
	l.waitForHits(t)
	l.stopAndWait()
	o.mu.Lock()
	late, byStore, lost := o.decided[byFallback], o.decided[byStore], o.failed[redis.Timeout]
	o.mu.Unlock()
	t.Logf("%d charges decided by the store, %d by the fallback", byStore, late)
	if lost == 0 || late == 0 {
		t.Errorf("failed %v, want timeouts", o.failed)
	}
	l.compareCounts(t, late)
}

// A server that disappears without closing connections, as after a power failure, does not delay callers beyond the timeout, and
// is used again when it is back.
func TestServerDisappears(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Fallback: Deny, DialTimeout: time.Second})
	storetest.Eventually(t, "up", s.Up)
	r.holdBoth(true)
	storetest.Eventually(t, "away, though nobody asks", func() bool { return !s.Up() })
	var c caller
	if err := c.ask(s, oneHit(1, hugeBucket)); err != nil || !c.b.Denied {
		t.Errorf("decided %+v, %v, want the fallback", c.b.Decisions, err)
	}
	r.holdBoth(false)
	storetest.Eventually(t, "up again", s.Up)
	if err := c.ask(s, oneHit(1, hugeBucket)); err != nil || c.b.Denied {
		t.Errorf("decided %+v, %v, want the store's decision", c.b.Decisions, err)
	}
}
