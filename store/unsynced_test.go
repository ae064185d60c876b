//go:build more

package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// usedHits returns the count of a counter in the store.
func (c *caller) usedHits(tb testing.TB, s *Store, charge limiter.Charge) int {
	tb.Helper()
	charge.Hits = 0
	must.OK(tb, c.decide(s, charge))
	return int(c.b.Decisions[0].Before)
}

// If a request's own deadline passes and the reply arrives later, its hits are not synced. If the
// connection ends instead, they are.
func TestLateRepliesSyncNothing(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{true, false} {
		srv := storetest.Start(t)
		r := newRelay(t, srv.Addr, nil, false)
		o := &recorder{}
		s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o, Timeout: time.Minute})
		storetest.Eventually(t, "up", s.Up)
		r.pause(true)
		sh := s.main.shardOf(0)
		var c [2]caller
		for n := range c {
			decided := make(replyChan, 1)
			c[n].b.Charges = []limiter.Charge{oneHit(uint64(n+1), hugeFixedWindow)}
			if isDone, err := s.Decide(limiter.Time(time.Now().UnixNano()), &c[n].b, [][]byte{nameOf("s1", &c[n].b.Charges[0])}, decided); isDone || err != nil {
				t.Fatal(isDone, err)
			}
			storetest.Eventually(t, "the requests are sent", func() bool {
				sh.mu.Lock()
				defer sh.mu.Unlock()
				return sh.inFlight == n+1
			})
			sh.mu.Lock()
			late := sh.removeLateLocked(clock().Add(time.Hour)) // the deadline passes
			sh.mu.Unlock()
			sh.fallBack(late)
			if err := <-decided; err != nil || c[n].b.Denied {
				t.Fatal(err, c[n].b.Denied)
			}
		}
		if n := s.unsyncedCounters(); n != 0 {
			t.Errorf("%d counters are unsynced while replies may arrive, want none", n)
		}
		if !arrives {
			r.setBlocked(true)
			storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
			storetest.Eventually(t, "the hits are unsynced", func() bool { return s.unsyncedCounters() == 2 })
			r.setBlocked(false)
		}
		r.pause(false)
		storetest.Eventually(t, "up", s.Up)
		for n := range uint64(2) {
			got := 0
			storetest.Eventually(t, "the store has the hit", func() bool {
				got = c[0].usedHits(t, s, oneHit(n+1, hugeFixedWindow))
				return got > 0
			})
			if got != 1 {
				t.Errorf("the reply arrives: %v: the store has %d hits, want 1", arrives, got)
			}
		}
		if arrives != (o.synced == 0) {
			t.Errorf("the reply arrives: %v: %d hits were synced", arrives, o.synced)
		}
	}
}

// Hits without room in the ledger, and those on a key that another program wrote, are dropped and
// counted; the others are charged. Unsynced hits on a counter that is reset are dropped.
func TestDroppedHits(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	o := &recorder{}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o})
	storetest.Eventually(t, "up", s.Up)
	s.main.ledger.maxEntries = 4
	log := &limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 9, Window: time.Second} // expires long before the others
	r.setBlocked(true)
	var c caller
	storetest.Eventually(t, "unavailable", func() bool {
		_ = c.usedHits(t, s, oneHit(1, hugeFixedWindow))
		return !s.Up()
	})
	for n := range uint64(4) {
		must.OK(t, c.decide(s, oneHit(n+1, hugeFixedWindow)))
	}
	five := oneHit(5, log)
	five.Hits = 7
	if err := c.decide(s, five); err != nil || o.dropped != 7 {
		t.Errorf("%d hits dropped, %v, want the 7 that do not fit into the ledger", o.dropped, err)
	}
	foreign := oneHit(2, hugeFixedWindow)
	key := string(script.AppendName(nil, limiter.Time(time.Now().UnixNano()), hugeFixedWindow, nameOf("s1", &foreign)))
	srv.Must("RPUSH", key, "x")
	s.main.ledger.remove(string(script.AppendName(nil, limiter.Time(time.Now().UnixNano()), hugeFixedWindow, nameOf("s1", &limiter.Charge{ID: oneHit(3, hugeFixedWindow).ID}))))
	r.setBlocked(false)
	storetest.Eventually(t, "up again", s.Up)
	for n, want := range map[uint64]int{1: 1, 3: 0, 4: 1} {
		if got := c.usedHits(t, s, oneHit(n, hugeFixedWindow)); got != want {
			t.Errorf("counter %d has %d hits, want %d", n, got, want)
		}
	}
	if o.dropped != 8 || o.synced != 2 || o.failuresOf(redis.Script) == 0 || s.unsyncedCounters() != 0 {
		t.Errorf("%d hits dropped, %d synced, failures %v, %d counters unsynced; want 8, 2, one failure for the key, and 0", o.dropped, o.synced, o.failed, s.unsyncedCounters())
	}
}

// A refund without the store is subtracted from the unsynced hits, alone or with other hits.
func TestRefundOfUnsyncedHits(t *testing.T) {
	t.Parallel()
	for by, want := range map[Fallback]int{Local: 4, Allow: 10} { // Allow admits all 6 hits
		for _, p := range refundable {
			srv := storetest.Start(t)
			r := newRelay(t, srv.Addr, nil, false)
			s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Fallback: by})
			storetest.Eventually(t, "up", s.Up)
			r.setBlocked(true)
			var c caller
			storetest.Eventually(t, "unavailable", func() bool {
				_ = c.decide(s, oneHit(2, p))
				return !s.Up()
			})
			charge := oneHit(1, p)
			charge.Hits = 9
			both := withRefund(1, p, 3)
			denied := withRefund(1, p, 2)
			denied[0].Hits = 6
			for _, charges := range [][]limiter.Charge{{charge}, both[1:], denied} {
				must.OK(t, c.decide(s, charges...))
			}
			r.setBlocked(false)
			storetest.Eventually(t, "up again", s.Up)
			want := want
			if p.Algorithm == limiter.SlidingLog {
				want = min(want, int(p.Limit)) // a log has at most its limit
			}
			if got := c.usedHits(t, s, charge); got != want {
				t.Errorf("fallback %s, algorithm %d: the store has %d hits, want %d", by, p.Algorithm, got, want)
			}
		}
	}
}

// Synced hits of a log count from their own time, except that hits in the same thirty-second part
// of the window count from the newest of them.
func TestSyncedLog(t *testing.T) {
	w := newComparison(t, Local)
	f := w.store.main
	sh := f.shardOf(0)
	p := &limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 50, Window: 32 * time.Second}
	var c caller
	charge := oneHit(1, p)
	for range 100 {
		w.now.Add(int64(time.Second / 2))
		at := limiter.Time(w.now.Load())
		c.b.Reset()
		c.b.Charges = append(c.b.Charges, charge)
		must.OK(t, w.store.fallBack(at, &c.b))
		f.recordUnsynced(Local, at, &c.b, 0, append(nameOf("s1", &charge), 'x'), "", 0, &c)
	}
	if runs := len(f.ledger.entries["s1{1}_x"].Runs); runs > script.LogRuns+2 {
		t.Errorf("%d runs of hits are kept, want %d at most", runs, script.LogRuns+2)
	}
	if _, err := sh.sync(t.Context(), sh.conn, clock().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	count := func() uint64 {
		c.b.Reset()
		peek := charge
		peek.Hits = 0
		c.b.Charges, c.names = append(c.b.Charges, peek), [][]byte{append(nameOf("s1", &charge), 'x')}
		c.decided = make(chan error, 1)
		if done, err := w.store.Decide(limiter.Time(w.now.Load()), &c.b, c.names, &c); !done && <-c.decided != nil || err != nil {
			t.Fatal(err)
		}
		return c.b.Decisions[0].Before
	}
	if got := count(); got != 50 {
		t.Errorf("the store has %d hits, want the limit", got)
	}
	w.now.Add(int64(20 * time.Second))
	if got := count(); got < 24 || got > 27 {
		t.Errorf("20 seconds later the store has %d hits, want the 24 of the last 12 seconds, and two or three that a run keeps longer", got)
	}
	w.now.Add(int64(13 * time.Second))
	if got := count(); got != 0 {
		t.Errorf("a window later the store has %d hits, want none", got)
	}
}

// Hits on a key that another program wrote are dropped, and the key does not change. Hits for which
// the server has no memory stay unsynced.
func TestHitsThatCannotBeSynced(t *testing.T) {
	t.Parallel()
	w := newComparison(t, Local)
	w.server.Must("CONFIG", "SET", "maxmemory-policy", "noeviction")
	f := w.store.main
	sh, conn := f.shardOf(0), newClient(t, w.server) // without memory, a probe ends the shard's own connection
	var c caller
	sync := func(p *limiter.Policy, name string) error {
		at := limiter.Time(w.now.Load())
		c.b.Reset()
		c.b.Charges = append(c.b.Charges, oneHit(1, p))
		must.OK(t, w.store.fallBack(at, &c.b))
		f.recordUnsynced(Local, at, &c.b, 0, []byte(name), name, 0, &c)
		_, err := sh.sync(t.Context(), conn, clock().Add(time.Minute))
		return err
	}
	const day = 24 * time.Hour
	wantDropped := uint64(0)
	for name, tt := range map[string]struct {
		p     *limiter.Policy
		wrote []string
	}{
		"fixed window": {hugeFixedWindow, []string{"", "letters", "1.5", "007", "9223372036854775807"}},
		"ring":         {&limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 9, Window: day, SubWindows: 10}, []string{"letters", strings.Repeat("x", 1000), strings.Repeat("\xff", 52)}},
		"bucket":       {&limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: 9}, []string{"letters", "1", ""}},
		"permits":      {permitCharge(1, 9).Policy, []string{"a string", ""}},
		"log":          {&limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 9, Window: day}, []string{"a string"}},
	} {
		for _, wrote := range tt.wrote {
			w.server.Must("SET", name, wrote)
			wantDropped++
			if err := sync(tt.p, name); err != nil || w.seen.dropped != wantDropped || w.store.unsyncedCounters() != 0 {
				t.Errorf("%s %.20q: %v, %d hits dropped, want %d", name, wrote, err, w.seen.dropped, wantDropped)
			}
			if got := w.server.Must("GET", name); got != wrote {
				t.Errorf("%s: another program's %.20q is %.20q now", name, wrote, got)
			}
		}
	}
	w.server.Must("CONFIG", "SET", "maxmemory", "1")
	if err := sync(hugeFixedWindow, "counter"); redis.KindOf(err) != redis.Memory || w.seen.dropped != wantDropped || w.store.unsyncedCounters() != 1 {
		t.Errorf("without memory: %v, %d hits dropped, %d counters unsynced, want %d and one", err, w.seen.dropped, w.store.unsyncedCounters(), wantDropped)
	}
}

// Unsynced hits of a failed primary are charged to its replacement.
func TestUnsyncedHitsFollowTheirSlots(t *testing.T) {
	t.Parallel()
	all := storetest.StartCluster(t, 3, true)
	o := &recorder{}
	s := runStore(t, Options{Server: nodes(all), Observer: o})
	storetest.Eventually(t, "up", s.Up)
	var c caller
	all[1].Kill()
	storetest.Eventually(t, "unavailable", func() bool {
		for n := range uint64(40) {
			_ = c.usedHits(t, s, oneHit(n+1, hugeFixedWindow))
		}
		return !s.Up()
	})
	for n := range uint64(40) {
		for range 5 {
			must.OK(t, c.decide(s, oneHit(n+1, hugeFixedWindow)))
		}
	}
	storetest.EnableFailover(slices.Delete(slices.Clone(all), 1, 2))
	if s.unsyncedCounters() == 0 {
		t.Error("nothing is unsynced, want the hits that were admitted after the primary died")
	}
	storetest.Eventually(t, "up again, and all hits are synced", func() bool { return s.Up() && s.unsyncedCounters() == 0 })
	for n := range uint64(40) {
		if got := c.usedHits(t, s, oneHit(n+1, hugeFixedWindow)); got != 5 {
			t.Errorf("counter %d has %d hits, want 5", n+1, got)
		}
	}
	if o.dropped != 0 {
		t.Errorf("%d hits were dropped, want none", o.dropped)
	}
}

// keyOf returns the key of a charge that a caller sends.
func keyOf(c *limiter.Charge) string {
	name := nameOf("s1", c)
	if c.Policy.Algorithm != limiter.FixedWindow {
		name = append(name, 'x')
	}
	return string(script.AppendName(nil, limiter.Time(time.Now().UnixNano()), c.Policy, name))
}

// A reset that the store has done drops the unsynced hits on the counter, even if its caller has
// given up. A reset that the store has not done drops nothing.
func TestResetWhoseCallerGivesUp(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Timeout: time.Minute, DialTimeout: time.Minute})
	storetest.Eventually(t, "up", s.Up)
	var c caller
	charge := oneHit(1, hugeFixedWindow)
	addUnsynced := func() {
		at := limiter.Time(time.Now().UnixNano())
		c.b.Reset()
		c.b.Charges = append(c.b.Charges, charge)
		must.OK(t, s.fallBack(at, &c.b))
		s.main.recordUnsynced(Local, at, &c.b, 0, []byte(keyOf(&charge)), "", 0, &c)
	}
	must.OK(t, c.decide(s, charge))
	addUnsynced()
	r.pauseReplies(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := &limiter.Batch{Charges: []limiter.Charge{charge}}
	if _, err := s.Reset(ctx, limiter.Time(time.Now().UnixNano()), b, [][]byte{nameOf("s1", &charge)}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a reset with a cancelled context: %v", err)
	}
	r.pauseReplies(false)
	storetest.Eventually(t, "the counter is reset", func() bool { return c.usedHits(t, s, charge) == 0 })
	sh := s.main.shardOf(0)
	storetest.Eventually(t, "the reply to the reset has been read", func() bool {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.inFlight == 0
	})
	if n := s.unsyncedCounters(); n != 0 {
		t.Errorf("%d counters have unsynced hits from before the reset", n)
	}
	r.setBlocked(true)
	storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
	addUnsynced()
	if _, err := reset(s, hugeFixedWindow, nameOf("s1", &charge)); !errors.Is(err, ErrUnavailable) || s.unsyncedCounters() != 1 {
		t.Errorf("a reset without the store: %v, %d counters are unsynced, want %v and one", err, s.unsyncedCounters(), ErrUnavailable)
	}
	r.setBlocked(false)
	storetest.Eventually(t, "up again", s.Up)
	if got := c.usedHits(t, s, charge); got != 1 {
		t.Errorf("%d hits are charged, want the one that was not reset", got)
	}
}
