//go:build more

package store

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// compareCounts compares the counts that s reads in the store with the admitted hits. A hit that was
// decided late may count once more.
func (l *traffic) compareCounts(tb testing.TB, s *Store, late int) {
	tb.Helper()
	var c caller
	over := 0
	for n := range l.admitted {
		peek := oneHit(uint64(n+1), hugeFixedWindow)
		peek.Hits = 0
		must.OK(tb, c.decide(s, peek))
		got, want := int(c.b.Decisions[0].Before), int(l.admitted[n].Load())
		if got < want {
			tb.Errorf("counter %d has %d hits, fewer than the %d that were admitted", n+1, got, want)
		}
		over += got - want
	}
	if over > late {
		tb.Errorf("the store has %d hits more than were admitted, want at most %d, the number of late replies", over, late)
	}
}

// Lost packets are sent again. The store decides requests whose replies are in time. Late requests
// count once, whether the caller waits or not.
func TestPacketsLost(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	o := &recorder{}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o, Fallback: Deny, Timeout: time.Second, DialTimeout: time.Second})
	storetest.Eventually(t, "up", s.Up)
	l := newTraffic(t, s)
	for range 50 {
		l.waitForHits(t)
		r.pause(true)
		storetest.Eventually(t, "data waits in the relay", r.isPaused)
		r.pause(false)
	}
	for range 2 {
		l.waitForHits(t)
		r.pause(true)
		storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
		r.pause(false)
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
	reader := runStore(t, Options{Server: serverAt(srv), Fallback: Error})
	storetest.Eventually(t, "up", reader.Up)
	l.compareCounts(t, reader, late)
}

// A server that disappears without closing connections, as in a power failure, does not delay
// callers beyond the timeout, and is used again when it is back.
func TestServerDisappears(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Fallback: Deny, Timeout: time.Second, DialTimeout: time.Second})
	storetest.Eventually(t, "up", s.Up)
	r.pause(true)
	storetest.Eventually(t, "the store is unavailable, even without requests", func() bool { return !s.Up() })
	var c caller
	if err := c.decide(s, oneHit(1, hugeBucket)); err != nil || !c.b.Denied {
		t.Errorf("decided %+v, %v, want the fallback", c.b.Decisions, err)
	}
	r.pause(false)
	storetest.Eventually(t, "the store decides again", func() bool {
		must.OK(t, c.decide(s, oneHit(1, hugeBucket)))
		return !c.b.Denied
	})
}
