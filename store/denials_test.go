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

// decidedBy returns how many charges were decided by what.
func (o *recorder) decidedBy(what string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.decided[what]
}

// What has no room is refused without the store, for a second: then one caller asks, and sees what
// others gave back. Only what the mirror knows for certain is.
func TestCachedDenials(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		p       limiter.Policy
		certain bool
	}{
		"fixed window":            {limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 10, Window: limiter.MaxWindow}, true},
		"that counts refusals":    {limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 10, Window: limiter.MaxWindow, CountRefused: true}, false},
		"sliding window":          {limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 10, Window: day, SubWindows: 1}, true},
		"sliding log":             {limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 10, Window: day}, false},
		"token bucket":            {limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: 10}, true},
		"leaky bucket":            {limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 1, Window: day, Slack: 9}, true},
		"token bucket with debts": {limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: day, Burst: 10, CountRefused: true}, false},
	} {
		for _, fallback := range []Fallback{Local, Error} {
			t.Run(name+", "+string(fallback), func(t *testing.T) {
				t.Parallel()
				srv := storetest.Start(t)
				o := &recorder{}
				var now atomic.Int64 // of all clocks
				now.Store(1_900_000_000_999_999_999)
				clock := func() time.Time { return time.Unix(0, now.Load()) }
				theirs := func() limiter.Time { return limiter.Time(now.Load()) }
				mine := runStore(t, Options{Server: serverAt(srv), Observer: o, Fallback: fallback, Clock: clock, at: theirs})
				other := runStore(t, Options{Server: serverAt(srv), Clock: clock, at: theirs})
				storetest.Eventually(t, "up", func() bool { return mine.Up() && other.Up() })
				c, d := caller{clock: clock}, caller{clock: clock}
				ask := func(s *Store, c *caller, charges ...limiter.Charge) {
					t.Helper()
					must.OK(t, c.ask(s, charges...))
				}
				charge := oneHit(1, &tt.p)
				charge.Hits = 8
				ask(mine, &c, charge)
				charge.Hits = 3 // of which 2 would have room
				ask(mine, &c, charge)
				first := c.b.Decisions[0]
				if !first.Over {
					t.Fatalf("decided %+v, want it refused", first)
				}
				charge.Hits = 10
				ask(mine, &c, charge)
				before := o.decidedBy(byStore)
				if want := map[bool]int{true: 1, false: 0}[tt.certain]; o.decidedBy(byMemory) != want {
					t.Errorf("%d refused by memory that have no room, want %d", o.decidedBy(byMemory), want)
				}
				charge.Hits = 2
				ask(mine, &c, charge) // now there is no room at all
				memory := o.decidedBy(byMemory)
				charge.Hits = 1
				for range 5 {
					ask(mine, &c, charge)
					got := c.b.Decisions[0]
					if !got.Over || !c.b.Denied || got.RetryAfter == 0 || tt.certain && got.Charged != 0 {
						t.Errorf("decided %+v", got)
					}
				}
				if want := map[bool]int{true: 5, false: 0}[tt.certain]; o.decidedBy(byMemory)-memory != want {
					t.Errorf("%d refused by memory, want %d", o.decidedBy(byMemory)-memory, want)
				}
				memory = o.decidedBy(byMemory)
				look, refund := charge, charge
				look.Hits, refund.Hits, refund.Refund = 0, 60, true
				ask(mine, &c, look)
				if o.decidedBy(byMemory) != memory || o.decidedBy(byStore) == before {
					t.Error("a look was answered by memory")
				}
				// Another replica gives all back. It shows a second later.
				ask(other, &d, refund)
				now.Add(int64(cacheFor))
				ask(mine, &c, charge)
				if o.decidedBy(byMemory) != memory || c.b.Denied {
					t.Errorf("after a second decided %+v, want the store to be asked", c.b.Decisions)
				}
				ask(mine, &c, refund)
				if o.decidedBy(byMemory) != memory {
					t.Error("a refund was answered by memory")
				}
			})
		}
	}
}

// A limit on outcomes looks when a request comes and charges when it has ended, if it failed. Where
// refused hits count, the one that makes a full counter exceed its limit is counted like any other,
// and every later look says so.
func TestLimitOnOutcomes(t *testing.T) {
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv)})
	storetest.Eventually(t, "up", s.Up)
	failures := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: limiter.MaxWindow, CountRefused: true}
	look, charge := oneHit(1, failures), oneHit(1, failures)
	look.Hits = 0
	var c caller
	admitted := 0
	for range 100 {
		must.OK(t, c.ask(s, look))
		if c.b.Denied {
			continue
		}
		admitted++
		must.OK(t, c.ask(s, charge))
	}
	if admitted != 6 {
		t.Errorf("%d of 100 failures were admitted, want 6, as in memory: the limit of 5, and the one that exceeds it", admitted)
	}
}

// A group with one is refused whole, and nothing is charged. If another group of the request may
// have room, the store is asked.
func TestCachedDenialsOfGroups(t *testing.T) {
	srv := storetest.Start(t)
	o := &recorder{}
	s := runStore(t, Options{Server: serverAt(srv), Observer: o})
	storetest.Eventually(t, "up", s.Up)
	small := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1, Window: limiter.MaxWindow}
	large := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 9, Window: limiter.MaxWindow}
	var c caller
	ask := func(charges ...limiter.Charge) []limiter.Decision {
		t.Helper()
		must.OK(t, c.ask(s, charges...))
		return c.b.Decisions
	}
	ask(oneHit(1, small))
	ask(oneHit(2, large))
	group := []limiter.Charge{oneHit(2, large), oneHit(1, small)}
	before := o.decidedBy(byMemory)
	got := ask(group...)
	if o.decidedBy(byMemory) != before+2 || !c.b.Denied || got[0].Over || !got[0].Denied || got[0].Remaining != 8 || !got[1].Over {
		t.Errorf("decided %+v, %d by memory, want the group to be refused by memory", got, o.decidedBy(byMemory))
	}
	group[1].Group = 1
	if got := ask(group...); got[0].Charged != 1 || !got[1].Over {
		t.Errorf("decided %+v, want the first to be admitted", got)
	}
	group[1].Group, group[1].Mode = 0, limiter.Shadow
	if got := ask(group...); got[0].Charged != 1 || !got[1].Over || c.b.Denied {
		t.Errorf("decided %+v, want the group to be admitted, since one in shadow denies nothing", got)
	}
	counts := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 9, Window: limiter.MaxWindow, CountRefused: true, Penalty: limiter.NewPenalty(time.Hour)}
	group = []limiter.Charge{oneHit(3, counts), oneHit(1, small)}
	for used := range uint64(3) {
		if got := ask(group...); got[0].Before != used || got[0].Charged != 1 || !got[0].Denied {
			t.Errorf("decided %+v, want the first to be charged although it is denied: its limit counts denied hits, and no penalty has begun", got)
		}
	}
}

// Of many that ask when the second is over one asks the store.
func TestOneCallerRechecksADenial(t *testing.T) {
	var f deniedCache
	c := oneHit(7, hugeBucket)
	now := limiter.Time(1_900_000_000_999_999_999)
	say := func(after time.Duration, want bool) {
		t.Helper()
		if got := f.isDenied(now+limiter.Time(after), &c); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
	say(0, false)
	f.mark(now, &c)
	say(0, true)
	say(-time.Millisecond, true)
	say(time.Second-time.Millisecond, true)
	say(time.Second, false)
	for range 3 {
		say(time.Second, true)
	}
	say(time.Second+recheckAfter, false)
	say(time.Second+recheckAfter, true)
	say(time.Hour, false)
	say(-time.Hour, false)
	other := c
	other.ID.Lo ^= 1 << 20
	f.mark(now, &other) // takes the same place
	say(0, false)
}

// A refusal from memory allocates nothing.
func TestCachedDenialAllocatesNothing(t *testing.T) {
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv)})
	storetest.Eventually(t, "up", s.Up)
	var c caller
	none := oneHit(1, &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 0, Window: limiter.MaxWindow})
	if err := c.ask(s, none); err != nil || !c.b.Denied {
		t.Fatal(err, c.b.Denied)
	}
	now := limiter.Time(time.Now().UnixNano())
	if n := testing.AllocsPerRun(1000, func() {
		if !s.denyFromCache(now, &c.b) {
			t.Error("asked the store")
		}
	}); n != 0 {
		t.Errorf("%s allocations", strconv.FormatFloat(n, 'f', -1, 64))
	}
}
