package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// addHits adds hits on a counter to l, and returns the number of dropped hits.
func (l *ledger) addHits(now limiter.Time, name string, p *limiter.Policy, hits uint64) (dropped uint64, ends limiter.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := limiter.Batch{Charges: []limiter.Charge{{Policy: p, Hits: hits}}, Decisions: []limiter.Decision{{Charged: hits}}}
	var d script.Unsynced
	d.Set(now, &b, 0, false)
	return l.addLocked([]byte(name), 0, &d, func() func(uint64) { return nil }), d.ExpiresAt()
}

// A full ledger drops no hits while it has expired entries, and does not replace an entry by one
// that expires less than twice as far ahead. All hits are kept, dropped, or expired.
func TestExpiredEntriesMakeRoom(t *testing.T) {
	t.Parallel()
	var policies []*limiter.Policy
	for _, window := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		policies = append(policies,
			&limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 9, Window: window},
			&limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 9, Window: window, SubWindows: 10},
			&limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 9, Window: window},
			&limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 9, Window: window, Burst: 9},
		)
	}
	for seed := range uint64(effort.Times(t, 2)) {
		random := rand.New(rand.NewPCG(39, seed))
		l := newLedger()
		l.maxEntries = 32
		type entry struct {
			ends limiter.Time
			hits uint64
		}
		model := map[string]entry{}
		now := limiter.Time(1_800_000_000 * time.Second)
		var made, dropped, over uint64
		for range 4000 {
			now += limiter.Time(random.Int64N(int64(time.Second) << random.IntN(10)))
			k := random.IntN(len(policies))
			p, hits := policies[k], uint64(1+random.IntN(3))
			name := fmt.Sprintf("%d %d", k, random.IntN(8))
			if p.Algorithm == limiter.FixedWindow {
				name += fmt.Sprint(" ", p.WindowStart(now))
			}
			expired := slices.ContainsFunc(slices.Collect(maps.Values(model)), func(d entry) bool { return d.ends <= now })
			_, known := model[name]
			full := len(model) == l.maxEntries && !known
			got, ends := l.addHits(now, name, p, hits)
			made, dropped = made+hits, dropped+got
			if got > 0 && (!full || expired) {
				t.Fatalf("seed %d: %d hits were dropped; full ledger: %v, an entry has expired: %v", seed, got, full, expired)
			}
			if l.entries[name] != nil {
				model[name] = entry{max(ends, model[name].ends), model[name].hits + hits}
			}
			for was, d := range model {
				if a := l.entries[was]; a != nil {
					if a.Hits != d.hits || a.ExpiresAt() != d.ends {
						t.Fatalf("seed %d: an entry of %d hits expires at %d, want %d and %d", seed, a.Hits, a.ExpiresAt(), d.hits, d.ends)
					}
					continue
				}
				if d.ends <= now {
					over += d.hits
				} else if got != d.hits || 2*(d.ends-now) > ends-now {
					t.Fatalf("seed %d: %d hits that expire in %v were dropped, and %d rejected, for hits that expire in %v",
						seed, d.hits, time.Duration(d.ends-now), got, time.Duration(ends-now))
				}
				delete(model, was)
			}
		}
		kept := uint64(0)
		for _, d := range model {
			kept += d.hits
		}
		if made != kept+dropped+over || len(l.entries) != len(model) || len(l.byExpiry) != len(model) || dropped == 0 || over == 0 {
			t.Errorf("seed %d: of %d hits %d are kept, %d dropped and %d expired, on %d counters of %d", seed, made, kept, dropped, over, len(l.entries), len(model))
		}
		removed := 0
		for all := l.removeForSlots(func(uint16) bool { return true }); len(all) > 0; all = l.removeForSlots(func(uint16) bool { return true }) {
			removed += len(all)
		}
		if removed != len(model) || len(l.entries)+len(l.byExpiry)+len(l.bySlot)+l.leases != 0 {
			t.Errorf("seed %d: %d entries are removed, want %d; the ledger has %d", seed, removed, len(model), len(l.entries))
		}
	}
}

// Expired leases make room in a full ledger, even if their counters have other leases.
func TestExpiredLeasesMakeRoom(t *testing.T) {
	t.Parallel()
	l := newLedger()
	l.maxLeases = 8
	p := permitCharge(1, 100).Policy
	start := limiter.Time(1_800_000_000 * time.Second)
	window := limiter.Time(p.Window)
	addLease := func(now limiter.Time, name string, back bool) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		lease := script.NewLease(name, 1)
		b := limiter.Batch{Charges: []limiter.Charge{{Policy: p, Hits: 1}}}
		b.Stored().ResetDecisions()
		b.Decisions[0].Charged = 1
		if b.Stored().SetLease(0, lease); back {
			b.Charges[0].Refund, b.Charges[0].Hits = true, lease
		}
		var d script.Unsynced
		d.Set(now, &b, 0, false)
		dropped := l.addLocked([]byte(name), 0, &d, func() func(uint64) { return nil })
		a := l.entries[name]
		has := a != nil && (a.HitsUnder(lease) > 0 || a.Released(lease))
		if dropped > 0 == has && !back {
			t.Errorf("%d hits are dropped; the ledger has their lease: %v", dropped, has)
		}
		return has
	}
	for n := range 8 {
		if !addLease(start+limiter.Time(n)*window/10, []string{"a", "b"}[n%2], n%4 > 1) {
			t.Fatalf("lease %d was not added", n)
		}
	}
	if addLease(start+window-limiter.Time(time.Second), "c", false) {
		t.Error("a ninth lease was added, although no lease has expired")
	}
	// Four leases have expired, of which two were released. Each counter also has other leases.
	for n := range 5 {
		if got := addLease(start+window*135/100+limiter.Time(n), "c", false); got != (n < 4) {
			t.Errorf("after four leases have expired, lease %d was added: %v", n, got)
		}
	}
}

// TestReturnedLeasesLeaveNoEntry returns leases that were acquired without the store, with a full ledger.
func TestReturnedLeasesLeaveNoEntry(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Server: redis.Server{Network: "tcp", Address: "127.0.0.1:1"}, Timeout: longTimeout, Fallback: Local, Table: newTable(t)})
	must.OK(t, err)
	s.main.ledger.maxLeases = 1
	for n := range uint64(10) {
		var c caller
		charge := permitCharge(n, 5)
		must.OK(t, c.decide(s, charge))
		charge.Refund = true
		charge.Hits = c.b.Lease(0)
		must.OK(t, c.decide(s, charge))
	}
	if n := s.unsyncedCounters(); n > 0 {
		t.Errorf("%d entries remain", n)
	}
}

// Entries that could not be charged are restored as older than the hits that arrived meanwhile.
// Hits of a log keep their times.
func TestRestoredEntriesAreOlder(t *testing.T) {
	t.Parallel()
	l := newLedger()
	start := limiter.Time(1_800_000_000 * time.Second)
	log := &limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 50, Window: time.Hour}
	edited := *log
	edited.Limit = 70
	l.addHits(start, "log", log, 3)
	old := l.removeForSlots(func(uint16) bool { return true })
	l.addHits(start+limiter.Time(50*time.Minute), "log", &edited, 2)
	if n := l.restore(old); n != 0 {
		t.Errorf("%d hits are dropped", n)
	}
	a := l.entries["log"]
	if len(a.Runs) != 2 || a.Hits != 5 || a.Policy.Limit != 70 || a.ExpiresAt() != start+limiter.Time(110*time.Minute) {
		t.Errorf("%d hits in %d runs with a limit of %d expire in %v; want 5 hits in 2 runs with a limit of 70, in 110 minutes", a.Hits, len(a.Runs), a.Policy.Limit, time.Duration(a.ExpiresAt()-start))
	}
}

// During an outage, recording a hit on a counter with unsynced hits allocates nothing.
func TestRecordingUnsyncedHitsAllocatesNothing(t *testing.T) {
	s, err := New(Options{Server: redis.Server{Network: "tcp", Address: "127.0.0.1:1"}, Timeout: longTimeout, Fallback: Local, Table: newTable(t)})
	must.OK(t, err)
	for _, p := range []*limiter.Policy{hugeFixedWindow, hugeBucket, {Algorithm: limiter.SlidingWindow, Limit: 1 << 30, Window: limiter.MaxWindow, SubWindows: 10}} {
		var c caller
		charge := oneHit(1, p)
		must.OK(t, c.decide(s, charge))
		now := limiter.Time(time.Now().UnixNano())
		var w limiter.Waiter = &c
		if n := must.AllocsPerRun(1000, func() {
			if done, err := s.Decide(now, &c.b, c.names, w); !done || err != nil {
				t.Error(done, err)
			}
		}); n != 0 {
			t.Errorf("algorithm %d: %v allocations", p.Algorithm, n)
		}
	}
}

// unsyncedCounters returns the number of counters with unsynced hits.
func (s *Store) unsyncedCounters() int {
	s.main.ledger.mu.Lock()
	defer s.main.ledger.mu.Unlock()
	return len(s.main.ledger.entries)
}
