package store

import (
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

// ringOf60 is costlier than most policies: 22 µs.
var ringOf60 = &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 5, Window: time.Hour, SubWindows: 60}

// manyCharges returns n charges on counters with consecutive numbers from first.
func manyCharges(first uint64, n int, p *limiter.Policy, hits uint64) (charges []limiter.Charge) {
	for i := range n {
		c := oneHit(first+uint64(i), p)
		c.ID.Hi, c.ID.Lo = c.ID.Lo*0x9E3779B97F4A7C15, c.ID.Lo*0xD1B54A32D192ED03 // tables rely on hashes
		c.Hits, c.Group = hits, int32(i)
		charges = append(charges, c)
	}
	return charges
}

// scriptCalls returns how often the server has run a script.
func scriptCalls(t *testing.T, srv *storetest.Server) (n int) {
	t.Helper()
	for _, command := range []string{"eval", "evalsha"} {
		_, rest, _ := strings.Cut(srv.Must("INFO", "commandstats"), "cmdstat_"+command+":calls=")
		digits, _, _ := strings.Cut(rest, ",")
		some, _ := strconv.Atoi(digits)
		n += some
	}
	return n
}

// A large request is decided in the store, in parts of half a millisecond.
func TestLargeRequest(t *testing.T) {
	srv := storetest.Start(t)
	o := &recorder{}
	s := runStore(t, Options{Server: serverAt(srv), Observer: o, Fallback: Error})
	storetest.Eventually(t, "up", s.Up)
	charges := manyCharges(1, 300, ringOf60, 3)
	before := scriptCalls(t, srv)
	for n := range 3 {
		var c caller
		must.OK(t, c.decide(s, charges...))
		for i := range charges {
			if d := c.b.Decisions[i]; d.Over != (n > 0) || d.Before != min(uint64(n)*3, 3) {
				t.Fatalf("request %d, charge %d: decided %+v", n, i, d)
			}
		}
	}
	// The store denied the second request, and the denials of the third were cached.
	least := 2 * 300 * int(script.CostOf(ringOf60, 3)) / int(script.MaxRun)
	if got := scriptCalls(t, srv) - before; got < least {
		t.Errorf("%d runs of the script, want at least %d", got, least)
	}
}

// A request that would take the store too long is decided in memory, with every fallback, and is
// counted as too_large.
func TestTooLargeRequest(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	o := &recorder{}
	s := newStore(t, Options{Server: serverAt(srv), Observer: o, Fallback: Error})
	runUntilEnd(t, s)
	storetest.Eventually(t, "up", s.Up)
	log := &limiter.Policy{Algorithm: limiter.SlidingLog, Limit: limiter.MaxLog, Window: time.Hour}
	var c caller
	for name, charges := range map[string][]limiter.Charge{
		"logs":  manyCharges(2001, 20, log, limiter.MaxLog),
		"rings": manyCharges(1, 1000, ringOf60, 1),
	} {
		before := o.decidedBy(byTooLarge)
		if err := c.decide(s, charges...); err != nil || len(c.b.Decisions) != len(charges) || c.b.Denied {
			t.Errorf("%s: decide = %v", name, err)
		}
		if got := o.decidedBy(byTooLarge) - before; got != len(charges) {
			t.Errorf("%s: %d charges decided in memory, want %d", name, got, len(charges))
		}
	}
	if o.decidedBy(byStore)+o.decidedBy(byFallback) > 0 {
		t.Errorf("decided %v, want all in memory", o.decided)
	}
	// The hits are charged to the store later, in several runs.
	peek := manyCharges(1, 1, ringOf60, 0)[0]
	storetest.Eventually(t, "charged", func() bool {
		return c.decide(s, peek) == nil && c.b.Decisions[0].Before == 1
	})
}

// newIdleShard returns a shard that accepts requests, and whose senders do not run.
func newIdleShard(t *testing.T) *shard {
	t.Helper()
	s := newStore(t, Options{Server: redis.Server{Network: "tcp", Address: "127.0.0.1:1"}})
	l := s.main.shardOf(0)
	l.conn = &redis.Conn{}
	t.Cleanup(func() { l.timer.Stop() })
	return l
}

func enqueueRequest(l *shard, cost time.Duration, bulk bool) *request {
	a := newRequest()
	a.call.Reset()
	a.call.Cost, a.bulk, a.batch = cost, bulk, &limiter.Batch{}
	a.send(l, time.Hour)
	return a
}

// A run takes the oldest requests up to its bound. While other requests wait, parts of large
// requests get at most half of it. No request waits for more than one run of the others.
func TestRunsAreBounded(t *testing.T) {
	l := newIdleShard(t)
	var small, parts []*request
	for range 1000 {
		small = append(small, enqueueRequest(l, 5*time.Microsecond, false))
	}
	for range 20 {
		parts = append(parts, enqueueRequest(l, script.MaxPart, true))
	}
	for range 21 {
		batch, _ := l.nextBatch(0, nil)
		l.batchDone()
		total, bulk := time.Duration(0), 0
		for _, a := range batch {
			total += a.call.Cost
			next := &small
			if a.bulk {
				next, bulk = &parts, bulk+1
			}
			if (*next)[0] != a {
				t.Fatal("a request was sent before an older one")
			}
			*next = (*next)[1:]
		}
		if total > script.MaxRun || total < script.MaxRun && len(small) > 0 || bulk > 1 && len(small) > 0 {
			t.Errorf("a run has %d requests, %d of them parts of large requests, and takes %v", len(batch), bulk, total)
		}
		if len(small)+len(parts) == 0 {
			return
		}
	}
	t.Errorf("%d requests and %d parts were not sent", len(small), len(parts))
}

// Parts of a large request are not sent after the deadline.
func TestPartsAfterTheirDeadlineAreDropped(t *testing.T) {
	l := newIdleShard(t)
	dropped, kept := enqueueRequest(l, script.MaxPart, true), enqueueRequest(l, script.MaxPart, true)
	dropped.deadline = clock()
	l.mu.Lock()
	late := l.removeLateLocked(clock())
	l.mu.Unlock()
	batch, _ := l.nextBatch(0, nil)
	if len(late) != 1 || late[0] != dropped || len(batch) != 1 || batch[0] != kept {
		t.Errorf("%d requests are late and %d were sent, want one of each", len(late), len(batch))
	}
}
