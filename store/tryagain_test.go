//go:build more

package store

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// If one of a descriptor's counters has moved and another has not, nodes reply TRYAGAIN. Such
// requests wait until both counters are at one node, or until the fallback decides. No hit is lost
// or counted twice.
func TestTryAgain(t *testing.T) {
	t.Parallel()
	all := storetest.StartCluster(t, 2, false)
	o := &recorder{}
	var unavailable atomic.Int64
	s := runStore(t, Options{Server: nodes(all), Observer: o, Fallback: Deny, Log: Log{Unavailable: func(_ string, kind redis.Kind, _ error, _ string) {
		if kind == redis.Cluster {
			unavailable.Add(1)
		}
	}}})
	storetest.Eventually(t, "up", s.Up)
	// A list of limits on one descriptor: two counters in one slot.
	charges := []limiter.Charge{
		oneHit(1, hugeFixedWindow),
		oneHit(1, &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 1 << 30, Window: 24 * time.Hour, SubWindows: 10}),
	}
	var admitted atomic.Int64
	var stop atomic.Bool
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			var c caller
			for !stop.Load() {
				if err := c.decide(s, charges...); err != nil {
					t.Error(err)
				}
				if !c.b.Denied {
					admitted.Add(1)
				}
			}
		})
	}
	awaitHits := func() {
		before := admitted.Load()
		storetest.Eventually(t, "hits are admitted", func() bool { return admitted.Load() > before+10 })
	}
	awaitHits()
	slot := redis.SlotOf(nameOf("s1", &charges[0]))
	from, to := all[int(slot)*2/redis.Slots], all[1-int(slot)*2/redis.Slots]
	keys := 0
	storetest.MoveSlot(from, to, slot, func() {
		switch keys++; keys {
		case 1: // neither has moved
			awaitHits()
		case 2: // one has moved
			storetest.Eventually(t, "TRYAGAIN", func() bool { return errorCount(t, from, "TRYAGAIN")+errorCount(t, to, "TRYAGAIN") > 0 })
		default:
			awaitHits()
		}
	})
	awaitHits()
	stop.Store(true)
	callers.Wait()
	if keys != 3 {
		t.Fatalf("%d keys moved, want 2", keys-1)
	}
	if n := unavailable.Load(); n > 0 {
		t.Errorf("a shard became unavailable %d times because of a redirection", n)
	}
	o.mu.Lock()
	late := o.decided[byFallback] / len(charges)
	t.Logf("decided %v, failed %v", o.decided, o.failed)
	o.mu.Unlock()
	for i := range charges {
		charges[i].Hits = 0
	}
	var c caller
	must.OK(t, c.decide(s, charges...))
	for i := range charges {
		if got, want := int(c.b.Decisions[i].Before), int(admitted.Load()); got < want || got > want+late {
			t.Errorf("counter %d has %d hits, want the %d that were admitted, plus at most %d of late replies", i, got, want, late)
		}
	}
}

// Before a store ends, it decides the requests that wait after TRYAGAIN.
func TestTryAgainAtShutdown(t *testing.T) {
	t.Parallel()
	nodes := newClockNodes(t, time.Now())
	nodes[0].tryAgain = true
	o := &recorder{}
	s := newStore(t, Options{Server: redis.Server{Nodes: []string{nodes[0].addr}}, Observer: o})
	s.tryAgainPause = time.Second // longer than the shutdown takes
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	storetest.Eventually(t, "up", s.Up)
	var c caller
	if done, err := c.start(s, 0, oneHit(1, &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: time.Hour, CountRefused: true})); done || err != nil {
		t.Fatal(done, err)
	}
	storetest.Eventually(t, "it waits", func() bool { return o.failuresOf(redis.Cluster) > 0 })
	cancel()
	<-ended
	if len(c.decided) == 0 {
		t.Errorf("a caller still waits when the store has ended, and gets %v after that", <-c.decided)
	}
}

// errorCount returns the number of errors with a code that s has sent.
func errorCount(tb testing.TB, s *storetest.Server, word string) int {
	tb.Helper()
	_, rest, _ := strings.Cut(s.Must("INFO", "errorstats"), "errorstat_"+word+":count=")
	rest, _, _ = strings.Cut(rest, "\r\n")
	n, _ := strconv.Atoi(rest)
	return n
}
