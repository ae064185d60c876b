package store

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// fromEnvironment returns the number that a variable has, or another one.
func fromEnvironment(tb testing.TB, name string, otherwise uint64) uint64 {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return n
}

// A store decides any sequence of requests as a table does: looks, charges of any weight, refunds, groups,
// quotas, and limits of several sizes on one counter, as overrides are. That goes through all
// that decides: certain refusals, the mirror that they are made in, the lane, the script and what reads
// its reply. STORE_ALIKE is how many requests there are, STORE_SEED repeats a failure.
func TestStoreDecidesAsMemory(t *testing.T) {
	requests, seed := fromEnvironment(t, "STORE_ALIKE", 5000), fromEnvironment(t, "STORE_SEED", 27)
	var now atomic.Int64
	now.Store(1_900_000_000_999_999_999)
	o := &told{}
	srv := storetest.Start(t)
	s, err := New(Options{
		Server: at(srv), Timeout: time.Minute, Fallback: Deny, Table: newTable(t), Observer: o,
		Clock: func() time.Time { return time.Unix(0, now.Load()) }, at: func() limiter.Time { return limiter.Time(now.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s)
	storetest.Eventually(t, "up", s.Up)
	memory, err := limiter.New(limiter.Options{Bytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	c := caller{decided: make(chan error, 1)}
	data := make([]byte, 200)
	var plain limiter.Batch
	for n := range requests {
		_, _ = random.Read(data)
		in := tape(data)
		now.Add(int64(someSteps[in.pick(len(someSteps))]))
		at := limiter.Time(now.Load())
		if in.pick(2) == 0 { // else the last one again, so that certain refusals are many
			in.request(&plain, false)
			if plain.Budget > 0 { // what is less than a busy machine takes would get the fallback
				plain.Budget = max(plain.Budget, 30*time.Second)
			}
		}
		c.b.Reset()
		c.b.Charges, c.b.QuotaPass, c.b.Budget = append(c.b.Charges, plain.Charges...), plain.QuotaPass, plain.Budget
		c.names = c.names[:0]
		for i := range plain.Charges {
			c.names = append(c.names, nameOf("s1", &plain.Charges[i]))
		}
		done, err := s.Decide(at, &c.b, c.names, &c)
		if !done {
			err = <-c.decided
		}
		if err != nil {
			t.Fatal(err)
		}
		memory.Decide(at, &plain)
		if diff := cmp.Diff(plain.Decisions, c.b.Decisions); diff != "" || plain.Denied != c.b.Denied || plain.Wait != c.b.Wait {
			t.Fatalf("seed %d, request %d at %d, budget %v, QuotaPass %v, charges\n%smemory -, store +:\n%s",
				seed, n, at, plain.Budget, plain.QuotaPass, describe(plain.Charges), diff)
		}
	}
	if o.by(byFallback) > 0 || o.by(byMemory) == 0 || o.by(byStore) == 0 || o.diverged > 0 {
		t.Errorf("decided %v, want some by the store and some by memory, none by the fallback; %d replies diverged", o.decided, o.diverged)
	}
	t.Logf("%d requests, charges decided %v", requests, o.decided)
}
