package limiter

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

var someSteps = []time.Duration{2 * time.Minute, 5 * time.Minute, 10 * time.Minute}

// penalising returns policies with penalties, of two hits a minute, one for each algorithm.
func penalising(steps ...time.Duration) map[string]*Policy {
	policies := map[string]*Policy{
		"fixed window":                         {Algorithm: FixedWindow},
		"fixed window that counts denied hits": {Algorithm: FixedWindow, CountRefused: true},
		"sliding window":                       {Algorithm: SlidingWindow, SubWindows: 6},
		"sliding log":                          {Algorithm: SlidingLog},
		"sliding log that counts denied hits":  {Algorithm: SlidingLog, CountRefused: true},
		"token bucket":                         {Algorithm: TokenBucket, Burst: 2},
		"token bucket in debt":                 {Algorithm: TokenBucket, Burst: 2, CountRefused: true},
	}
	for _, p := range policies {
		p.Limit, p.Window, p.Penalty = 2, time.Minute, NewPenalty(steps...)
		p.Prepare()
	}
	return policies
}

// exceedLimit charges a counter, which may be in use, until a hit is denied, and returns that decision.
func exceedLimit(tb testing.TB, tab *Table, now Time, p *Policy) Decision {
	tb.Helper()
	for range 4 {
		if d := decide(tab, now, Charge{ID: counterID(1), Policy: p, Hits: 1}).Decisions[0]; d.Over {
			return d
		}
	}
	tb.Fatal("four hits were admitted under a limit of two")
	return Decision{}
}

// TestChargesWithoutPenalty decides charges that start no penalty.
func TestChargesWithoutPenalty(t *testing.T) {
	p := penalising(someSteps...)["fixed window"]
	none := penalising(someSteps...)["fixed window"]
	none.Limit = 0
	other := &Policy{Algorithm: FixedWindow, Limit: 0, Window: time.Hour}
	full := Charge{ID: counterID(1), Policy: p, Hits: 3}
	with := func(change func(c *Charge)) []Charge {
		c := full
		change(&c)
		return []Charge{c}
	}
	for name, charges := range map[string][]Charge{
		"shadow mode":             with(func(c *Charge) { c.Mode = Shadow }),
		"a candidate":             with(func(c *Charge) { c.Mode = Watch }),
		"a quota":                 with(func(c *Charge) { c.Mode = Quota }),
		"a refund":                with(func(c *Charge) { c.Refund = true }),
		"a peek":                  with(func(c *Charge) { c.Hits = 0 }),
		"a limit of 0":            with(func(c *Charge) { c.Policy = none }),
		"denied by a group":       {{ID: counterID(1), Policy: p, Hits: 1}, {ID: counterID(2), Policy: other, Hits: 1}},
		"denied by another group": {{ID: counterID(1), Policy: p, Hits: 1}, {ID: counterID(2), Policy: other, Hits: 1, Group: 1}},
		"offset against a refund": {full, {ID: counterID(1), Policy: p, Hits: 3, Refund: true, Group: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			tab := newTable(t, 64<<10)
			for _, d := range decide(tab, benchNow, charges...).Decisions {
				if d.Penalty != 0 || d.PenaltyStarted {
					t.Errorf("%+v", d)
				}
			}
			if d := decide(tab, benchNow, Charge{ID: counterID(1), Policy: p, Hits: 1}).Decisions[0]; d.Over {
				t.Errorf("the next hit: %+v", d)
			}
			// These charges are not denied by a penalty either, except peeks and charges that a
			// group denies anyway.
			exceedLimit(t, tab, benchNow, p)
			d := decide(tab, benchNow, charges...).Decisions[0]
			if c := charges[0]; (c.Mode != Enforce || c.Refund || c.Policy == none) && d.Penalty != 0 {
				t.Errorf("a hit under the penalty: %+v", d)
			}
		})
	}
}

// TestPenaltiesInGroups checks that a penalty denies its group, which charges no other limit.
func TestPenaltiesInGroups(t *testing.T) {
	for name, p := range penalising(someSteps...) {
		t.Run(name, func(t *testing.T) {
			tab := newTable(t, 64<<10)
			wide := &Policy{Algorithm: TokenBucket, Limit: 100, Burst: 100, Window: time.Hour}
			hit := func(at Time, group int32) []Decision {
				return decide(tab, at,
					Charge{ID: counterID(1), Policy: p, Hits: 1}, Charge{ID: counterID(2), Policy: wide, Hits: 1, Group: group}).Decisions
			}
			hit(benchNow, 0)
			hit(benchNow, 0)
			if d := hit(benchNow, 0); !d[0].PenaltyStarted || d[0].Penalty != 1 || d[1].Charged != 0 || !d[1].Denied || d[1].Penalty != 0 {
				t.Fatalf("the third hit: %+v", d)
			}
			later := benchNow + Time(119*time.Second)
			if d := hit(later, 0); !d[0].Over || d[0].PenaltyStarted || d[0].Penalty != 1 || d[0].RetryAfter < time.Second-time.Millisecond || d[1].Charged != 0 || !d[1].Denied {
				t.Errorf("hits under the penalty in one group: %+v", d)
			}
			if d := hit(later, 1); !d[0].Over || d[1].Charged != 1 || d[1].Denied {
				t.Errorf("hits under the penalty in separate groups: %+v", d)
			}
			if d := hit(benchNow+Time(121*time.Second), 0); d[0].Over || d[0].Charged != 1 || d[1].Charged != 1 {
				t.Errorf("a hit after the penalty: %+v", d)
			}
		})
	}
}

// TestOnePenaltyForARequest has a request that hits a counter twice.
func TestOnePenaltyForARequest(t *testing.T) {
	p := penalising(someSteps...)["sliding log"]
	for _, group := range []int32{0, 1} {
		tab := newTable(t, 64<<10)
		c := Charge{ID: counterID(1), Policy: p, Hits: 3}
		second := c
		second.Group = group
		d := decide(tab, benchNow, c, second).Decisions
		if !d[0].PenaltyStarted || d[1].PenaltyStarted || d[0].Penalty != 1 || d[1].Penalty != 1 {
			t.Errorf("group %d: %+v", group, d)
		}
	}
}

// TestResetEndsPenalty checks that a reset also clears the level.
func TestResetEndsPenalty(t *testing.T) {
	for name, p := range penalising(someSteps...) {
		tab := newTable(t, 64<<10)
		exceedLimit(t, tab, benchNow, p)
		if used := reset(tab, benchNow+1, nil, counterID(1), p); used == 0 {
			t.Errorf("%s: the reset counter had no hits", name)
		}
		if d := decide(tab, benchNow+2, Charge{ID: counterID(1), Policy: p, Hits: 1}).Decisions[0]; d.Over {
			t.Errorf("%s: after a reset: %+v", name, d)
		}
		if d := exceedLimit(t, tab, benchNow+3, p); d.Penalty != 1 || !d.PenaltyStarted {
			t.Errorf("%s: the next denial: %+v", name, d)
		}
	}
}

// TestPenaltySurvivesSnapshot keeps penalties across a snapshot and changed rules.
func TestPenaltySurvivesSnapshot(t *testing.T) {
	now := benchNow
	for name, p := range penalising(someSteps...) {
		tab := newTable(t, 64<<10)
		exceedLimit(t, tab, now, p)
		exceedLimit(t, tab, now+Time(2*time.Minute+1e6), p) // the second step, five minutes
		now := now + Time(3*time.Minute)
		tab = load(t, snapshot(t, tab, now), 64<<10)
		hit := func(at Time, p *Policy) Decision {
			return decide(tab, at, Charge{ID: counterID(1), Policy: p, Hits: 1}).Decisions[0]
		}
		if d := hit(now, p); d.Penalty != 2 || d.PenaltyStarted || d.RetryAfter < 4*time.Minute {
			t.Errorf("%s: after loading: %+v", name, d)
		}
		changed := *p
		changed.Penalty = NewPenalty(time.Second, time.Hour)
		if d := hit(now, &changed); d.Penalty != 2 || d.PenaltyStarted || d.RetryAfter < 4*time.Minute {
			t.Errorf("%s: with other steps the penalty is %+v", name, d)
		}
		removed := *p
		removed.Penalty = nil
		if d := hit(now, &removed); d.Penalty != 0 || d.PenaltyStarted {
			t.Errorf("%s: without the field penalty: %+v", name, d)
		}
		if d := exceedLimit(t, tab, now+Time(5*time.Minute), &changed); !d.PenaltyStarted || d.Penalty != 2 || d.RetryAfter < time.Hour-time.Millisecond {
			t.Errorf("%s: the next penalty with other steps: %+v", name, d)
		}
	}
}

// TestPenaltyNeedsNoMemoryBeforeADenial checks the memory of a counter without denials.
func TestPenaltyNeedsNoMemoryBeforeADenial(t *testing.T) {
	p := penalising(someSteps...)["fixed window"]
	tab := newTable(t, 64<<10)
	decide(tab, benchNow, Charge{ID: counterID(1), Policy: p, Hits: 2})
	if n := tab.Live(benchNow); n != 1 {
		t.Errorf("%d counters are live before a denial", n)
	}
	exceedLimit(t, tab, benchNow, p)
	if n := tab.Live(benchNow); n != 2 {
		t.Errorf("%d counters are live after a denial", n)
	}
	if n := tab.Live(benchNow + Time(3*time.Minute+time.Second)); n != 0 {
		t.Errorf("%d counters are live a window after the penalty's end", n)
	}
	if bare := *p; CounterBytes(*p) != 32 || func() int { bare.Penalty = nil; return CounterBytes(bare) }() != 16 {
		t.Errorf("CounterBytes = %d", CounterBytes(*p))
	}
}

// TestPenaltyOfAClockSetBack has a penalty that began years ahead.
func TestPenaltyOfAClockSetBack(t *testing.T) {
	p := penalising(someSteps...)["fixed window"]
	tab := newTable(t, 64<<10)
	exceedLimit(t, tab, benchNow+Time(MaxWindow)+3*Time(MaxPenalty), p)
	if d := decide(tab, benchNow, Charge{ID: counterID(1), Policy: p, Hits: 1}).Decisions[0]; d.Over {
		t.Errorf("%+v", d)
	}
}

// TestPenaltyOfACalendar has a penalty that extends beyond the end of a day.
func TestPenaltyOfACalendar(t *testing.T) {
	p := &Policy{
		Algorithm: FixedWindow, Limit: 2, Window: 24 * time.Hour, Calendar: NewCalendar(time.UTC, 1).WithUnit(Days),
		Penalty: NewPenalty(time.Hour, 2*time.Hour),
	}
	must.OK(t, p.Validate())
	tab, night := newTable(t, 64<<10), Time(1_700_006_400-60)*Time(time.Second) // a minute before midnight
	exceedLimit(t, tab, night, p)
	hit := func(at Time) Decision {
		return decide(tab, at, Charge{ID: counterID(1), Policy: p, Hits: 1}).Decisions[0]
	}
	if d := hit(night + Time(2*time.Minute)); !d.Over || d.RetryAfter != 58*time.Minute {
		t.Errorf("a hit on the next day: %+v", d)
	}
	if d := hit(night + Time(time.Hour)); d.Over || d.Before != 0 {
		t.Errorf("a hit after the penalty: %+v", d)
	}
	if d := exceedLimit(t, tab, night+Time(time.Hour), p); d.Penalty != 2 {
		t.Errorf("another hit on that day: %+v", d)
	}
}

func TestPenaltyIsValidated(t *testing.T) {
	ok := Policy{Algorithm: FixedWindow, Limit: 1, Window: time.Minute}
	for wrong, change := range map[string]func(p *Policy){
		"this algorithm": func(p *Policy) { p.Algorithm, p.Penalty = Concurrency, NewPenalty(someSteps...) },
		"reserve": func(p *Policy) {
			p.Penalty, p.Reserve = NewPenalty(someSteps...), NewReserve(1, time.Minute, false)
		},
		"0 steps":   func(p *Policy) { p.Penalty = NewPenalty() },
		"16 steps":  func(p *Policy) { p.Penalty = NewPenalty(make([]time.Duration, 16)...) },
		"ascending": func(p *Policy) { p.Penalty = NewPenalty(time.Minute, time.Minute) },
		"whole":     func(p *Policy) { p.Penalty = NewPenalty(time.Second + 1) },
		"up to 876": func(p *Policy) { p.Penalty = NewPenalty(MaxPenalty + time.Second) },
	} {
		p := ok
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// penaltyOracle is a simple model of a limit with a penalty.
type penaltyOracle struct {
	counter oracle
	level   int
	end     Time // end of the penalty
}

func (o *penaltyOracle) decide(now Time, c Charge, budget time.Duration) Decision {
	p := c.Policy
	steps := p.Penalty.Steps()
	switch {
	case c.Refund || c.Mode != Enforce:
		return o.counter.decide(now, c, budget)
	case o.level > 0 && o.end > now:
		plain := *p
		plain.CountRefused, c.Policy = false, &plain
		d := copyOf(o.counter).decide(now, c, budget)
		d.Over, d.Remaining, d.Charged, d.Penalty = true, 0, 0, uint8(o.level)
		return o.addPenalty(now, d)
	}
	if o.end+Time(p.Window) <= now {
		o.level = 0
	}
	d := o.counter.decide(now, c, budget)
	if d.Over && c.Hits > 0 && p.Limit > 0 {
		o.level = min(o.level+1, len(steps))
		ms := Time(time.Millisecond)
		o.end = Time(quotient(int64(now+Time(steps[o.level-1])), int64(ms))) * ms
		d.PenaltyStarted, d.Penalty = true, uint8(o.level)
		return o.addPenalty(now, d)
	}
	return d
}

// addPenalty adds the penalty to a decision.
func (o *penaltyOracle) addPenalty(now Time, d Decision) Decision {
	left := time.Duration(o.end - now)
	if d.RetryAfter == Never {
		d.Reset = max(d.Reset, left)
		return d
	}
	d.RetryAfter = max(d.RetryAfter, left)
	d.Reset = d.RetryAfter
	return d
}

// copyOf returns a copy of an oracle.
func copyOf(o oracle) oracle {
	switch o := o.(type) {
	case *windowOracle:
		return &windowOracle{m: maps.Clone(o.m)}
	case *ringOracle:
		return &ringOracle{hits: maps.Clone(o.hits), newest: o.newest}
	case *logOracle:
		return &logOracle{times: slices.Clone(o.times), changed: o.changed}
	case *bucketOracle:
		return &bucketOracle{tat: o.tat}
	default:
		panic("unknown type of oracle")
	}
}

// TestPenaltyOracle plays random requests to a counter with penalties, and to the oracle.
// LIMITER_SEED repeats a failure.
func TestPenaltyOracle(t *testing.T) {
	r := rand.New(seeded(t))
	names := []string{}
	policies := penalising(time.Second, 3*time.Second, 8*time.Second)
	for name := range policies {
		names = append(names, name)
	}
	slices.Sort(names)
	began := 0
	for n := range 700 {
		p := policies[names[n%len(names)]]
		plain := *p
		plain.Window, plain.Limit = 4*time.Second, 3
		p = &plain
		tab, want := newTable(t, 64<<10), &penaltyOracle{counter: newOracle(p.Algorithm), end: -1 << 62}
		now := Time(1_700_000_000_999_999_999)
		var tape []string
		for range 80 {
			now += Time([]time.Duration{0, 1, time.Millisecond, 700 * time.Millisecond, time.Second, 4 * time.Second, 5 * time.Second}[r.IntN(7)])
			c := Charge{
				ID: counterID(1), Policy: p, Hits: []uint64{0, 1, 1, 2, 4}[r.IntN(5)], Refund: r.IntN(7) == 0,
				Mode: []Mode{Enforce, Enforce, Enforce, Shadow, Watch}[r.IntN(5)],
			}
			d := want.decide(now, c, 0)
			d.Denied = d.Over && c.Mode == Enforce
			b := decide(tab, now, c)
			tape = append(tape, describe(b.Charges))
			if b.Decisions[0] != d {
				t.Fatalf("%s at %d:\n got %+v\nwant %+v\n%s", names[n%len(names)], now, b.Decisions[0], d, strings.Join(tape, ""))
			}
			if d.PenaltyStarted {
				began++
			}
		}
	}
	if t.Log(began, "penalties began"); began < 1000 {
		t.Errorf("only %d penalties began", began)
	}
}

// TestPenaltiesBeginOnce denies many requests concurrently.
func TestPenaltiesBeginOnce(t *testing.T) {
	for name, p := range penalising(someSteps...) {
		for n := range 50 {
			tab := newTable(t, 64<<10)
			decide(tab, benchNow, Charge{ID: counterID(1), Policy: p, Hits: 2})
			var mu sync.Mutex
			var all []Decision
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					d := decide(tab, benchNow, Charge{ID: counterID(1), Policy: p, Hits: 1}).Decisions[0]
					mu.Lock()
					all = append(all, d)
					mu.Unlock()
				})
			}
			wg.Wait()
			began := 0
			for _, d := range all {
				if !d.Over || d.Penalty != 1 {
					t.Fatalf("%s, round %d: %+v", name, n, d)
				}
				if d.PenaltyStarted {
					began++
				}
			}
			if began != 1 {
				t.Fatalf("%s, round %d: %d penalties began", name, n, began)
			}
		}
	}
}
