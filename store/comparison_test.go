//go:build more

package store

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// fromEnvironment returns the number in an environment variable, or fallback if it is not set.
func fromEnvironment(tb testing.TB, name string, fallback uint64) uint64 {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return n
}

// A comparison sends the same random requests to a store and to a table, with a clock of its own.
type comparison struct {
	seed   uint64
	random *rand.ChaCha8
	now    atomic.Int64
	server *storetest.Server
	seen   recorder
	store  *Store
	memory *limiter.Table
	plain  limiter.Batch // decided by the table
	c      caller        // decides in the store
	in     tape
	same   []limiter.Charge // charges of the last request, without leases
	leases grantedLeases
}

func newComparison(tb testing.TB, fallback Fallback) *comparison {
	tb.Helper()
	w := &comparison{leases: grantedLeases{}, seed: fromEnvironment(tb, "STORE_SEED", 27)}
	w.random = rand.NewChaCha8([32]byte{byte(w.seed), byte(w.seed >> 8)})
	w.now.Store(1_900_000_000_999_999_999)
	w.c.decided = make(chan error, 1)
	srv := storetest.Start(tb)
	w.server = srv
	var err error
	w.store, err = New(Options{
		Server: serverAt(srv), Timeout: time.Minute, DialTimeout: time.Minute, Fallback: fallback, Table: newTable(tb), Observer: &w.seen,
		Clock: func() time.Time { return time.Unix(0, w.now.Load()) }, at: func() limiter.Time { return limiter.Time(w.now.Load()) },
	})
	must.OK(tb, err)
	runUntilEnd(tb, w.store)
	storetest.Eventually(tb, "up", w.store.Up)
	if w.memory, err = limiter.New(limiter.Options{Bytes: 16 << 20}); err != nil {
		tb.Fatal(err)
	}
	return w
}

// nextRequest advances the clock and makes the next request, without the charges for which leaveOut
// is true.
func (w *comparison) nextRequest(leaveOut func(c *limiter.Charge) bool) limiter.Time {
	data := make([]byte, 200)
	_, _ = w.random.Read(data)
	w.in = data
	w.now.Add(int64(someSteps[w.in.pick(len(someSteps))]))
	if w.in.pick(2) == 0 || len(w.same) == 0 { // otherwise repeat the last request, so that many denials are cached
		w.in.nextRequest(&w.plain, false)
		w.same = slices.DeleteFunc(slices.Clone(w.plain.Charges), func(c limiter.Charge) bool { return leaveOut(&c) })
		if w.plain.Budget > 0 { // a busy machine may exceed a short budget, and the fallback would decide
			w.plain.Budget = max(w.plain.Budget, 30*time.Second)
		}
	}
	w.plain.Charges = append(w.plain.Charges[:0], w.same...)
	w.c.b.Reset()
	w.c.b.Charges, w.c.b.QuotaPass, w.c.b.Budget = append(w.c.b.Charges, w.same...), w.plain.QuotaPass, w.plain.Budget
	w.leases.setRefunds(&w.plain, 0)
	w.leases.setRefunds(&w.c.b, 1)
	w.c.names = w.c.names[:0]
	for i := range w.plain.Charges {
		w.c.names = append(w.c.names, nameOf("s1", &w.plain.Charges[i]))
	}
	return limiter.Time(w.now.Load())
}

// compareDecisions decides the request in memory and compares the store's decision with the result.
func (w *comparison) compareDecisions(tb testing.TB, n uint64) {
	tb.Helper()
	at := limiter.Time(w.now.Load())
	w.memory.Decide(at, &w.plain)
	if diff := cmp.Diff(w.plain.Decisions, w.c.b.Decisions); diff != "" || w.plain.Denied != w.c.b.Denied || w.plain.Wait != w.c.b.Wait {
		tb.Fatalf("seed %d, request %d at %d, budget %v, QuotaPass %v, charges\n%smemory -, store +:\n%s",
			w.seed, n, at, w.plain.Budget, w.plain.QuotaPass, describe(w.plain.Charges), diff)
	}
	w.leases.add(tb, &w.plain, &w.c.b)
}

// decideInStore decides the request in the store.
func (w *comparison) decideInStore(tb testing.TB, at limiter.Time) {
	tb.Helper()
	done, err := w.store.Decide(at, &w.c.b, w.c.names, &w.c)
	if !done {
		err = <-w.c.decided
	}
	must.OK(tb, err)
}

// A store decides any sequence of requests as a table does: peeks, charges, refunds, groups,
// quotas, and limits of several sizes on one counter, as overrides are. The test covers cached
// denials, the mirror, the shard, the script and the decoding of its reply. STORE_SEED repeats a failure.
func TestStoreDecidesAsMemory(t *testing.T) {
	t.Parallel()
	requests, w := uint64(effort.Times(t, 500)), newComparison(t, Deny)
	for n := range requests {
		w.decideInStore(t, w.nextRequest(func(*limiter.Charge) bool { return false }))
		w.compareDecisions(t, n)
	}
	o := &w.seen
	if o.decidedBy(byFallback) > 0 || o.decidedBy(byMemory) == 0 || o.decidedBy(byStore) == 0 || o.diverged > 0 {
		t.Errorf("decided %v, want charges decided by the store and by memory, and none by the fallback; %d replies diverged", o.decided, o.diverged)
	}
	t.Logf("%d requests, charges decided %v", requests, o.decided)
}

// Half of all requests are decided without the store. Their hits are charged to it before the next
// request. A single replica then decides exactly as memory does. Excluded are refunds, which
// only reduce unsynced hits; logs, which may keep hits longer; the debt of buckets, which is synced
// in complete hits; penalties, which are not synced; and requests after denials by quotas.
func TestSyncedAsMemory(t *testing.T) {
	t.Parallel()
	requests, w := uint64(effort.Times(t, 500)), newComparison(t, Local)
	f := w.store.main
	sh := f.shardOf(0)
	unavailable, left := false, 0
	for n := range requests {
		at := w.nextRequest(func(c *limiter.Charge) bool {
			bucket := c.Policy.Algorithm == limiter.TokenBucket || c.Policy.Algorithm == limiter.LeakyBucket
			return c.Policy.Algorithm == limiter.SlidingLog || c.Policy.UsesLeases() || c.Policy.Penalty != nil || c.Refund || c.Mode == limiter.Quota ||
				bucket && c.Policy.CountRefused || c.Choice != limiter.NoChoice // a choice needs all of its charges
		})
		if len(w.plain.Charges) == 0 {
			continue
		}
		if left--; left < 0 {
			if unavailable {
				if _, err := sh.sync(t.Context(), sh.conn, clock().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
			}
			unavailable, left = !unavailable, w.in.pick(9)
		}
		if !unavailable {
			w.decideInStore(t, at)
		} else if err := w.store.fallBack(at, &w.c.b); err != nil {
			t.Fatal(err)
		} else {
			for i := range w.c.b.Charges {
				f.recordUnsynced(Local, at, &w.c.b, i, script.AppendName(nil, at, w.c.b.Charges[i].Policy, w.c.names[i]), "", 0, &w.c)
			}
		}
		w.compareDecisions(t, n)
	}
	if w.seen.decidedBy(byFallback) == 0 || w.seen.decidedBy(byStore) == 0 || w.seen.synced == 0 || w.seen.dropped > 0 {
		t.Errorf("decided %v, %d hits synced, %d dropped; want none dropped and some of all others", w.seen.decided, w.seen.synced, w.seen.dropped)
	}
	t.Logf("%d requests, charges decided %v, %d hits synced", requests, w.seen.decided, w.seen.synced)
}
