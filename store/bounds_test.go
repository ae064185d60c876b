package store

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// A ledger has room for as many counters and leases as docs/store.md states.
func TestLedgerBounds(t *testing.T) {
	t.Parallel()
	const counters, leases, leasesOfACounter = 65_536, 262_144, 4096
	now := limiter.Time(1_800_000_000 * time.Second)
	l := newLedger()
	for n := range counters + 1 {
		if dropped, _ := l.addHits(now, strconv.Itoa(n), hugeFixedWindow, 1); dropped > 0 != (n == counters) {
			t.Fatalf("%d hits on counter %d are dropped", dropped, n)
		}
	}
	l = newLedger()
	permit := permitCharge(1, limiter.MaxLog).Policy
	acquire := func(name string) bool {
		b := limiter.Batch{Charges: []limiter.Charge{{Policy: permit, Hits: 1}}, Decisions: []limiter.Decision{{Charged: 1}}}
		b.Stored().ResetDecisions()
		b.Decisions[0].Charged = 1
		b.Stored().SetLease(0, script.NewLease(name, 1))
		var d script.Unsynced
		d.Set(now, &b, 0, false)
		before := l.leases
		l.addLocked([]byte(name), 0, &d, func() func(uint64) { return nil })
		return l.leases > before
	}
	for n := range leasesOfACounter + 1 {
		if acquire("0") != (n < leasesOfACounter) {
			t.Fatalf("lease %d of a counter: it has %d", n, l.leases)
		}
	}
	for n := leasesOfACounter; n <= leases; n++ {
		if acquire(strconv.Itoa(n/1024)) != (n < leases) {
			t.Fatalf("lease %d: the ledger has %d", n, l.leases)
		}
	}
}

// At shutdown, a store that does not answer is given up after two seconds.
func TestShutdownIsBounded(t *testing.T) {
	for name, connects := range map[string]bool{"connects and is silent": true, "does not connect": false} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New(Options{Server: redis.Server{Network: "tcp", Address: "x"}, Timeout: longTimeout, DialTimeout: longTimeout, Fallback: Local})
			must.OK(t, err)
			l := s.main.shardOf(0)
			l.dial = func(ctx context.Context) (*redis.Conn, error) {
				if !connects {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				mine, theirs := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(theirs)) }()
				return redis.New(mine, "", longTimeout), nil
			}
			s.main.ledger.addHits(limiter.Time(time.Now().UnixNano()), "a", hugeFixedWindow, 1)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan time.Time)
			go func() {
				l.run(ctx)
				ended <- time.Now()
			}()
			time.Sleep(time.Minute)
			cancel()
			stopped := time.Now()
			if took := (<-ended).Sub(stopped); took != 2*time.Second {
				t.Errorf("%s: the store ends after %v, want 2s", name, took)
			}
		})
	}
}

// A shard that recovers charges unsynced hits for two seconds at most before requests use the store
// again. The others stay in the ledger, and are charged afterwards.
func TestRecoveryIsBounded(t *testing.T) {
	s := newStore(t, Options{Server: redis.Server{Network: "tcp", Address: "x"}, Fallback: Local})
	if s.syncBound != 2*time.Second {
		t.Errorf("a shard charges hits for %v before it is available, docs/store.md states 2s", s.syncBound)
	}
	sh := s.main.shardOf(0)
	for n := range 5 {
		s.main.ledger.addHits(limiter.Time(time.Now().UnixNano()), strconv.Itoa(n), hugeFixedWindow, 1)
	}
	if all, err := sh.sync(t.Context(), nil, clock().Add(-time.Second)); err != nil || all != (Synced{}) {
		t.Errorf("after the time is over: charged %+v, %v", all, err)
	}
	if n := len(s.main.ledger.entries); n != 5 || len(sh.syncNow) != 1 {
		t.Errorf("%d counters have unsynced hits, want 5; %d requests to charge them, want 1", n, len(sh.syncNow))
	}
}

// A ledger remembers the last returned leases, until they are granted again.
func TestReturnedLeasesAreBounded(t *testing.T) {
	t.Parallel()
	const name, n = "s1{1}_x", 5*maxReturned + 1
	l := newLedger()
	leases := make([]uint64, n)
	returned := map[uint64]bool{}
	for i := range leases {
		for leases[i] == 0 || returned[leases[i]] { // a process repeats leases after half a million, which other tests may take meanwhile
			leases[i] = script.NewLease(name, 1)
		}
		if returned[leases[i]] = true; l.returnLease(name, leases[i]) {
			t.Fatalf("lease %d counts as returned before", i)
		}
	}
	if remembered := len(l.returned[0]) + len(l.returned[1]); remembered > 2*maxReturned {
		t.Errorf("%d leases are remembered, want at most %d", remembered, 2*maxReturned)
	}
	for _, lease := range leases[n-maxReturned:] {
		if !l.returnLease(name, lease) {
			t.Fatalf("the lease %d is not remembered", lease)
		}
	}
	last := leases[n-1]
	if l.grantLease(name, last); l.returnLease(name, last) || l.returnLease("s1{2}_x", last) {
		t.Error("a lease that was granted again, or one of another counter, counts as returned before")
	}
}
