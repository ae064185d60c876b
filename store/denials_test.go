//go:build more

package store

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// decidedBy returns the number of charges that were decided by a component: see Deciders.
func (o *recorder) decidedBy(component string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.decided[component]
}

// For a second after a counter was full, hits are denied without the store, if the mirror is
// certain. Then one caller queries the store again, which sees the refunds of other replicas.
func TestCachedDenials(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		p       limiter.Policy
		certain bool
	}{
		"fixed window":                         {limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 10, Window: limiter.MaxWindow}, true},
		"fixed window that counts denied hits": {limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 10, Window: limiter.MaxWindow, CountRefused: true}, false},
		"sliding window":                       {limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 10, Window: day, SubWindows: 1}, true},
		"sliding log":                          {limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 10, Window: day}, false},
		"token bucket":                         {limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: 10}, true},
		"leaky bucket":                         {limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 1, Window: day, Slack: 9}, true},
		"token bucket with debts":              {limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: 10, CountRefused: true}, false},
	} {
		for _, fallback := range []Fallback{Local, Error} {
			t.Run(name+", "+string(fallback), func(t *testing.T) {
				t.Parallel()
				srv := storetest.Start(t)
				o := &recorder{}
				var now atomic.Int64 // read by all clocks
				now.Store(1_900_000_000_999_999_999)
				clock := func() time.Time { return time.Unix(0, now.Load()) }
				theirs := func() limiter.Time { return limiter.Time(now.Load()) }
				store := runStore(t, Options{Server: serverAt(srv), Observer: o, Fallback: fallback, Clock: clock, at: theirs})
				other := runStore(t, Options{Server: serverAt(srv), Clock: clock, at: theirs})
				storetest.Eventually(t, "up", func() bool { return store.Up() && other.Up() })
				c, d := caller{clock: clock}, caller{clock: clock}
				decide := func(s *Store, c *caller, charges ...limiter.Charge) {
					t.Helper()
					must.OK(t, c.decide(s, charges...))
				}
				charge := oneHit(1, &tt.p)
				charge.Hits = 8
				decide(store, &c, charge)
				charge.Hits = 3 // 2 hits are left
				decide(store, &c, charge)
				first := c.b.Decisions[0]
				if !first.Over {
					t.Fatalf("decided %+v, want a denial", first)
				}
				charge.Hits = 10
				decide(store, &c, charge)
				before := o.decidedBy(byStore)
				if want := map[bool]int{true: 1, false: 0}[tt.certain]; o.decidedBy(byMemory) != want {
					t.Errorf("%d hits beyond the limit were denied by memory, want %d", o.decidedBy(byMemory), want)
				}
				charge.Hits = 2
				decide(store, &c, charge) // now the counter is full
				memory := o.decidedBy(byMemory)
				charge.Hits = 1
				for range 5 {
					decide(store, &c, charge)
					got := c.b.Decisions[0]
					if !got.Over || !c.b.Denied || got.RetryAfter == 0 || tt.certain && got.Charged != 0 {
						t.Errorf("decided %+v", got)
					}
				}
				if want := map[bool]int{true: 5, false: 0}[tt.certain]; o.decidedBy(byMemory)-memory != want {
					t.Errorf("%d further hits were denied by memory, want %d", o.decidedBy(byMemory)-memory, want)
				}
				memory = o.decidedBy(byMemory)
				peek, refund := charge, charge
				peek.Hits, refund.Hits, refund.Refund = 0, 60, true
				decide(store, &c, peek)
				if o.decidedBy(byMemory) != memory || o.decidedBy(byStore) == before {
					t.Error("a peek was decided by memory")
				}
				// Another replica refunds all hits. This replica notices after a second.
				decide(other, &d, refund)
				now.Add(int64(cacheFor))
				decide(store, &c, charge)
				if o.decidedBy(byMemory) != memory || c.b.Denied {
					t.Errorf("decided %+v after a second, want the store's decision", c.b.Decisions)
				}
				decide(store, &c, refund)
				if o.decidedBy(byMemory) != memory {
					t.Error("a refund was decided by memory")
				}
			})
		}
	}
}

// A limit on failures is peeked at before each request, and charged after a request has failed. If
// denied hits count, a hit on a full counter makes it exceed its limit, and every later peek is
// denied.
func TestLimitOnOutcomes(t *testing.T) {
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv)})
	storetest.Eventually(t, "up", s.Up)
	failures := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: limiter.MaxWindow, CountRefused: true}
	peek, charge := oneHit(1, failures), oneHit(1, failures)
	peek.Hits = 0
	var c caller
	admitted := 0
	for range 100 {
		must.OK(t, c.decide(s, peek))
		if c.b.Denied {
			continue
		}
		admitted++
		must.OK(t, c.decide(s, charge))
	}
	if admitted != 6 {
		t.Errorf("%d of 100 failures were admitted, want 6 as in memory: the limit of 5, and the hit that exceeds it", admitted)
	}
}

// A group with a certain denial is denied completely, and nothing is charged. If another group of
// the request may have room, the store decides.
func TestCachedDenialsOfGroups(t *testing.T) {
	srv := storetest.Start(t)
	o := &recorder{}
	s := runStore(t, Options{Server: serverAt(srv), Observer: o, Clock: frozenClock, at: frozenTime}) // denials are cached for a second
	storetest.Eventually(t, "up", s.Up)
	small := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1, Window: limiter.MaxWindow}
	large := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 9, Window: limiter.MaxWindow}
	c := caller{clock: frozenClock}
	decide := func(charges ...limiter.Charge) []limiter.Decision {
		t.Helper()
		must.OK(t, c.decide(s, charges...))
		return c.b.Decisions
	}
	decide(oneHit(1, small))
	decide(oneHit(2, large))
	group := []limiter.Charge{oneHit(2, large), oneHit(1, small)}
	before := o.decidedBy(byMemory)
	got := decide(group...)
	if o.decidedBy(byMemory) != before+2 || !c.b.Denied || got[0].Over || !got[0].Denied || got[0].Remaining != 8 || !got[1].Over {
		t.Errorf("decided %+v, %d by memory, want the group denied by memory", got, o.decidedBy(byMemory))
	}
	group[1].Group = 1
	if got := decide(group...); got[0].Charged != 1 || !got[1].Over {
		t.Errorf("decided %+v, want the first to be admitted", got)
	}
	group[1].Group, group[1].Mode = 0, limiter.Shadow
	if got := decide(group...); got[0].Charged != 1 || !got[1].Over || c.b.Denied {
		t.Errorf("decided %+v, want the group to be admitted, since a limit in shadow mode denies nothing", got)
	}
	counts := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 9, Window: limiter.MaxWindow, CountRefused: true, Penalty: limiter.NewPenalty(time.Hour)}
	group = []limiter.Charge{oneHit(3, counts), oneHit(1, small)}
	for used := range uint64(3) {
		if got := decide(group...); got[0].Before != used || got[0].Charged != 1 || !got[0].Denied {
			t.Errorf("decided %+v, want the first to be charged although it is denied: its limit counts denied hits, and no penalty has begun", got)
		}
	}
}

// The denial of a choice is certain if the store has reported within the last second that each of its
// counters has no room, for whatever choices.
func TestCachedDenialsOfChoices(t *testing.T) {
	srv := storetest.Start(t)
	o := &recorder{}
	s := runStore(t, Options{Server: serverAt(srv), Observer: o, Clock: frozenClock, at: frozenTime})
	storetest.Eventually(t, "up", s.Up)
	share := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 2, Window: limiter.MaxWindow}
	pool := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 3, Window: limiter.MaxWindow, Burst: 3}
	c := caller{clock: frozenClock}
	for i, tt := range []struct{ tenant, hits, charged, denied, byMemory int }{
		{tenant: 1, hits: 2, charged: 1},
		{tenant: 1, hits: 3, charged: 2}, // the pool is empty
		{tenant: 1, hits: 1, denied: 2, byMemory: 2},
		{tenant: 2, hits: 1, charged: 1}, // its share is not known
		{tenant: 2, hits: 2, denied: 2},
		{tenant: 2, hits: 2, denied: 2, byMemory: 2},
		{tenant: 2, hits: 1, charged: 1}, // the share has room
		{tenant: 2, hits: 1, denied: 2, byMemory: 2},
		{tenant: 3, hits: 3, denied: 2}, // its share is not known
		{tenant: 3, hits: 3, denied: 2, byMemory: 2},
	} {
		first := oneHit(uint64(tt.tenant), share)
		next := oneHit(9, pool)
		first.Hits = uint64(tt.hits)
		next.Hits = first.Hits
		first.Choice = limiter.FirstChoice
		next.Choice = limiter.NextChoice
		before := o.decidedBy(byMemory)
		must.OK(t, c.decide(s, first, next))
		charged, denied := 0, 0
		for k, d := range c.b.Decisions {
			if d.Charged > 0 {
				charged = k + 1
			}
			if d.Denied {
				denied++
			}
		}
		if got := o.decidedBy(byMemory) - before; got != tt.byMemory || charged != tt.charged || denied != tt.denied {
			t.Errorf("%d: %+v: decided %+v, %d charges by memory", i, tt, c.b.Decisions, got)
		}
	}
}

// A denial from memory allocates nothing.
func TestCachedDenialAllocatesNothing(t *testing.T) {
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv), Clock: frozenClock, at: frozenTime}) // denials are cached for a second
	storetest.Eventually(t, "up", s.Up)
	c := caller{clock: frozenClock}
	none := oneHit(1, &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 0, Window: limiter.MaxWindow})
	if err := c.decide(s, none); err != nil || !c.b.Denied {
		t.Fatal(err, c.b.Denied)
	}
	if n := must.AllocsPerRun(1000, func() {
		if !s.denyFromMemory(frozenTime(), &c.b) {
			t.Error("the store was queried")
		}
	}); n != 0 {
		t.Errorf("%s allocations", strconv.FormatFloat(n, 'f', -1, 64))
	}
}
