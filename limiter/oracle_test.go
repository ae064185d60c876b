package limiter

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// An oracle is a simple model of one counter. decide returns the decision of a charge at a time,
// but does not set Denied.
type oracle interface {
	decide(now Time, c Charge, budget time.Duration) Decision
}

func newOracle(a Algorithm) oracle {
	switch a {
	case FixedWindow:
		return &windowOracle{}
	case SlidingWindow:
		return &ringOracle{}
	case SlidingLog:
		return &logOracle{changed: math.MinInt64}
	case Concurrency:
		return &permitsOracle{}
	default:
		return &bucketOracle{}
	}
}

// windowOracle counts all hits of a window in a model of tables.
type windowOracle struct{ m model }

func (o *windowOracle) decide(now Time, c Charge, _ time.Duration) Decision {
	if o.m == nil {
		o.m = model{}
	}
	b := &Batch{Charges: []Charge{c}}
	o.m.decide(now, b)
	b.Decisions[0].Denied = false
	return b.Decisions[0]
}

// setReset sets Reset for both sliding algorithms. end is the time at which the newest hit ceases
// to count.
func setReset(d *Decision, p *Policy, now, end Time, some bool) {
	switch {
	case d.Over && d.RetryAfter == Never:
		d.Reset = p.Window
	case d.Over:
		d.Reset = d.RetryAfter
	case some:
		d.Reset = max(1, time.Duration(end-now))
	default:
		d.Reset = 1
	}
}

// ringOracle stores the hits of all sub-windows.
type ringOracle struct {
	hits   map[int64]uint64
	newest int64
}

func (o *ringOracle) decide(now Time, c Charge, _ time.Duration) (d Decision) {
	was := o
	p, k := c.Policy, int64(c.Policy.SubWindows)
	length := (int64(p.Window) + k - 1) / k
	number, periodStart := quotient(int64(now), length), func(x int64) Time { return Time(x * length) }
	if p.Calendar != nil && p.Calendar.zone != time.UTC {
		number, periodStart = plain(p.Calendar).number(now, k), func(x int64) Time { return plain(p.Calendar).part(x, k) }
	}
	if o.hits == nil {
		o.hits, o.newest = map[int64]uint64{}, math.MinInt64
	}
	at := max(number, o.newest)
	if at > number && tooFar(periodStart(at), now) {
		at = number
		o = &ringOracle{hits: map[int64]uint64{}} // dropped, except in decisions that change nothing
		defer func() {
			if d.Charged > 0 {
				*was = *o
			}
		}()
	}
	sum := func(at int64) (n uint64) {
		for x, hits := range o.hits {
			if x >= at-k && x <= at {
				n += hits
			}
		}
		return n
	}
	limit := uint64(p.Limit)
	d.Before = sum(at)
	put := func(n uint64) { o.hits[at], o.newest, d.Charged = n, at, max(n, o.hits[at])-min(n, o.hits[at]) }
	switch {
	case c.Refund:
		if n := min(c.Hits, o.hits[at]); n > 0 {
			put(o.hits[at] - n)
		}
	case c.Hits <= limit && d.Before <= limit-c.Hits:
		if c.Hits > 0 {
			put(o.hits[at] + c.Hits)
		}
	default:
		d.Over, d.RetryAfter = true, Never
		if n := min(c.Hits, math.MaxUint32-o.hits[at]); p.CountRefused && n > 0 {
			put(o.hits[at] + n)
		}
		for later := at; c.Hits <= limit; later++ {
			if s := sum(later); s+c.Hits <= limit {
				d.RetryAfter = time.Duration(periodStart(later) - now)
				break
			}
		}
	}
	if !d.Over {
		d.Remaining = limit - min(limit, sum(at))
	}
	last, some := int64(0), false
	for x, hits := range o.hits {
		if hits > 0 && x >= at-k && x <= at && (!some || x > last) {
			last, some = x, true
		}
	}
	setReset(&d, p, now, periodStart(last+k+1), some)
	return d
}

// logOracle stores the times of all hits, and the time of the last change, at which late hits
// count.
type logOracle struct {
	times   []Time
	changed Time
}

func (o *logOracle) decide(now Time, c Charge, _ time.Duration) (d Decision) {
	was := o
	p, limit, at := c.Policy, uint64(c.Policy.Limit), max(now, o.changed)
	if tooFar(at, now) {
		o, at = &logOracle{}, now
		defer func() {
			if d.Charged > 0 {
				*was = *o
			}
		}()
	}
	live := slices.DeleteFunc(slices.Clone(o.times), func(t Time) bool { return t <= at-Time(p.Window) })
	live = live[max(0, len(live)-int(limit)):]
	used := uint64(len(live))
	d.Before = used
	put := func(n uint64) {
		for range min(n, limit) {
			live = append(live, at)
		}
		live = live[max(0, len(live)-int(limit)):]
		o.times, o.changed = live, at
		d.Charged = uint64(len(live)) - used
	}
	switch {
	case c.Refund:
		if n := min(c.Hits, used); n > 0 {
			live, d.Charged = live[:used-n], n
			o.times, o.changed = live, at
		}
	case c.Hits <= limit && used <= limit-c.Hits:
		if c.Hits > 0 {
			put(c.Hits)
		}
	default:
		d.Over, d.RetryAfter = true, Never
		if p.CountRefused {
			put(c.Hits)
		}
		if c.Hits <= limit {
			first := live[uint64(len(live))+c.Hits-limit-1]
			d.RetryAfter = time.Duration(first + Time(p.Window) - now)
		}
	}
	if !d.Over {
		d.Remaining = limit - uint64(len(live))
	}
	last := Time(0)
	if len(live) > 0 {
		last = live[len(live)-1]
	}
	setReset(&d, p, now, last+Time(p.Window), len(live) > 0)
	return d
}

// permitsOracle stores the expiry times of permits that are never released. The hits of a refund
// are not a lease.
type permitsOracle struct{ ends []Time }

func (o *permitsOracle) decide(now Time, c Charge, _ time.Duration) Decision {
	p, limit := c.Policy, uint64(c.Policy.Limit)
	live := slices.DeleteFunc(slices.Clone(o.ends), func(end Time) bool {
		return end <= now || tooFar(end-Time(p.Window)-Time(time.Millisecond), now)
	})
	d := Decision{Before: uint64(len(live)), Reset: time.Second}
	switch {
	case c.Refund:
	case c.Hits > 0 && d.Before < limit:
		ms := Time(time.Millisecond)
		live, d.Charged = append(live, Time(quotient(int64(now)+int64(p.Window)+int64(ms)-1, int64(ms)))*ms), 1
		o.ends = live
	case c.Hits > 0 || d.Before > limit:
		d.Over, d.RetryAfter = true, time.Second
		if c.Hits > 0 && limit == 0 {
			d.RetryAfter, d.Reset = Never, p.Window
		}
	}
	if !d.Over {
		d.Remaining = limit - min(limit, uint64(len(live)))
	}
	return d
}

// bucketOracle stores the theoretical arrival time in 1/16 ns.
type bucketOracle struct{ tat *big.Int }

func (o *bucketOracle) decide(now Time, c Charge, budget time.Duration) Decision {
	n := big.NewInt
	mul := func(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }
	add := func(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) }
	sub := func(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }
	least := func(a, b *big.Int) *big.Int {
		if a.Cmp(b) < 0 {
			return a
		}
		return b
	}
	floor := func(a, b *big.Int) *big.Int { return new(big.Int).Div(a, b) } // rounds down: b > 0
	ceil := func(a, b *big.Int) *big.Int { return floor(sub(add(a, b), n(1)), b) }
	sixteen := n(16)
	duration := func(x *big.Int) time.Duration { return time.Duration(ceil(x, sixteen).Int64()) }

	p := c.Policy
	at := mul(n(int64(now)), sixteen)
	within := func(most *big.Int) bool { // or the clock was set back
		most = add(most, mul(n(int64(time.Hour)), sixteen))
		return o.tat != nil && o.tat.Cmp(at) > 0 && sub(o.tat, at).Cmp(most) <= 0
	}
	window := mul(n(int64(p.Window)), sixteen)
	if p.Limit == 0 {
		if c.Hits > 0 && !c.Refund {
			return Decision{Over: true, RetryAfter: Never, Reset: p.Window}
		}
		d := Decision{Reset: 1}
		if o.tat != nil && o.tat.Cmp(at) > 0 {
			d.Reset = duration(sub(o.tat, at))
		}
		return d
	}
	// The emission interval, rounded to nanoseconds from about a microsecond.
	unit := n(16)
	if int64(p.Window)/int64(p.Limit) < 1024 {
		unit = n(1)
	}
	interval := mul(ceil(mul(n(int64(p.Window)), sixteen), mul(unit, n(int64(p.Limit)))), unit)
	size, hold, held := int64(p.Burst), n(0), n(0)
	if p.Algorithm == LeakyBucket {
		size = int64(p.Slack) + 1
		hold = least(mul(n(int64(p.MaxWait)), sixteen), mul(n(int64(p.MaxWaiting)), interval))
		held = least(hold, mul(n(int64(max(0, budget))), sixteen))
	}
	full := mul(n(size), interval)
	highest := add(full, window)
	if hold.Cmp(window) > 0 {
		highest = add(full, hold)
	}
	lag := n(0)
	if within(highest) {
		lag = sub(o.tat, at)
	}
	before := lag
	d := Decision{Before: ceil(lag, interval).Uint64()}
	need := mul(new(big.Int).SetUint64(c.Hits), interval)
	put := func(x *big.Int) { lag, o.tat = x, add(at, x) }
	switch capacity := add(full, held); {
	case c.Refund:
		if p.Algorithm == LeakyBucket && lag.Cmp(full) > 0 {
			break
		}
		d.Charged = min(c.Hits, d.Before)
		if d.Charged > 0 {
			put(sub(lag, least(lag, need)))
		}
	case c.Hits == 0:
		if capacity = add(full, hold); lag.Cmp(capacity) > 0 {
			d.Over, d.RetryAfter = true, duration(sub(lag, capacity))
		}
	case add(lag, need).Cmp(capacity) <= 0:
		put(add(lag, need))
		d.Charged = c.Hits
		if lag.Cmp(full) > 0 {
			d.Wait = duration(sub(lag, full))
		}
	default:
		d.Over, d.RetryAfter = true, Never
		if p.CountRefused {
			after := least(add(lag, need), add(full, window))
			if after.Cmp(lag) > 0 {
				put(after)
			}
			d.Charged = min(c.Hits, floor(sub(lag, before), interval).Uint64())
		}
		if need.Cmp(capacity) <= 0 {
			d.RetryAfter = duration(sub(add(lag, need), capacity))
		}
	}
	if left := sub(add(full, held), lag); !d.Over && left.Sign() > 0 {
		d.Remaining = floor(left, interval).Uint64()
	}
	setReset(&d, p, now, now+Time(duration(lag)), lag.Sign() > 0)
	return d
}

// oraclePolicies are selected by tapes: several policies with a common counter for each algorithm.
var oraclePolicies = [][]Policy{
	{
		{Algorithm: FixedWindow, Limit: 3, Window: time.Minute},
		{Algorithm: FixedWindow, Limit: 5, Window: time.Minute, CountRefused: true},
	},
	{
		{Algorithm: SlidingWindow, Limit: 3, Window: time.Second, SubWindows: 10},
		{Algorithm: SlidingWindow, Limit: 9, Window: time.Second, SubWindows: 10, CountRefused: true},
		{Algorithm: SlidingWindow, Limit: math.MaxUint32, Window: time.Second, SubWindows: 10},
	},
	{
		{Algorithm: SlidingWindow, Limit: 4, Window: 7 * time.Second, SubWindows: 60},
		{Algorithm: SlidingWindow, Limit: 0, Window: 7 * time.Second, SubWindows: 60},
	},
	{{Algorithm: SlidingWindow, Limit: 4, Window: time.Minute, SubWindows: 1}},
	{{Algorithm: SlidingWindow, Limit: 4, Window: MaxWindow, SubWindows: 7}},
	{
		{Algorithm: SlidingLog, Limit: 3, Window: time.Second},
		{Algorithm: SlidingLog, Limit: 2, Window: time.Second, CountRefused: true},
		{Algorithm: SlidingLog, Limit: 0, Window: time.Second},
	},
	{{Algorithm: SlidingLog, Limit: 40, Window: time.Minute, CountRefused: true}},
	{
		{Algorithm: TokenBucket, Limit: 7, Window: time.Second, Burst: 3},
		{Algorithm: TokenBucket, Limit: 2, Window: time.Second, Burst: 9},
		{Algorithm: TokenBucket, Limit: 0, Window: time.Second, Burst: 9},
	},
	{{Algorithm: TokenBucket, Limit: 60, Window: time.Minute, Burst: 60, CountRefused: true}},
	{{Algorithm: TokenBucket, Limit: math.MaxUint32, Window: time.Second, Burst: math.MaxUint32}},
	{
		{Algorithm: LeakyBucket, Limit: 100, Window: time.Second, Slack: 10, MaxWait: 50 * time.Millisecond, MaxWaiting: 3},
		{Algorithm: LeakyBucket, Limit: 30, Window: time.Second, MaxWait: time.Minute, MaxWaiting: 100, CountRefused: true},
	},
	{{Algorithm: LeakyBucket, Limit: 3, Window: MaxWindow, Slack: 2, MaxWait: time.Minute, MaxWaiting: 9, CountRefused: true}},
	{
		{Algorithm: Concurrency, Limit: 4, Window: time.Second},
		{Algorithm: Concurrency, Limit: 11, Window: time.Second},
		{Algorithm: Concurrency, Limit: 0, Window: time.Second},
	},
	{{Algorithm: Concurrency, Limit: 40, Window: time.Minute}},
	{{Algorithm: Concurrency, Limit: 4, Window: MaxWindow}},
}

var oracleSteps = []time.Duration{
	0, 1, time.Microsecond, -1, time.Millisecond, 33 * time.Millisecond, 100 * time.Millisecond, -40 * time.Millisecond,
	time.Second, -time.Second, 7 * time.Second, time.Minute, 500 * 24 * time.Hour,
	time.Hour, -time.Hour, 25 * time.Hour, 29 * 24 * time.Hour,
}

// compareWithOracle plays the tape to a counter and to an oracle, with alternating policies.
func compareWithOracle(tb testing.TB, data []byte) {
	tb.Helper()
	in := tape(data)
	all := append(slices.Clip(oraclePolicies), calendarPolicies()...)
	policies := all[in.pick(len(all))]
	want, now := newOracle(policies[0].Algorithm), Time(1_700_000_000_999_999_999)
	tab := newTable(tb, 256<<10)
	decide, budgets := inTable(tab), []time.Duration{time.Minute, 0, 20 * time.Millisecond}
	for step := 0; len(in) > 0 && step < 400; step++ {
		if d := oracleSteps[in.pick(len(oracleSteps))]; now < 5e18 {
			now += Time(d)
		}
		policy := policies[in.pick(len(policies))]
		p := &policy
		if step%2 == 1 {
			p.Prepare()
		}
		hits := modelHits[in.pick(len(modelHits))]
		if in.pick(4) == 0 && p.Limit > 9 {
			hits = min(hits, 9) * uint64(p.Limit) / 10
		}
		c := Charge{ID: counterID(1), Policy: p, Hits: hits, Refund: in.pick(6) == 1}
		budget := budgets[in.pick(len(budgets))]
		got, d := decide(now, c, budget), want.decide(now, c, budget)
		d.Denied = d.Over
		if got != d {
			tb.Fatalf("step %d at %d: %d hits, refund %v, budget %v, of %+v:\n got %+v\nwant %+v",
				step, now, c.Hits, c.Refund, budget, *p, got, d)
		}
		if !c.Refund {
			checkRetryAfter(tb, tab, now, c, budget, d)
		}
	}
}

// checkRetryAfter verifies RetryAfter on a copy of the counter: denied hits are admitted after it,
// and not a nanosecond earlier. It only peeks, so denied hits must not count.
func checkRetryAfter(tb testing.TB, tab *Table, now Time, c Charge, budget time.Duration, d Decision) {
	tb.Helper()
	if !d.Over || d.RetryAfter == Never || c.Policy.CountRefused || c.Policy.UsesLeases() || c.Hits == 0 {
		return
	}
	// The charge is undone, because another charge of the group is always denied.
	never := Charge{ID: counterID(2), Policy: perMinute(0), Hits: 1}
	would := func(at Time) bool {
		t := &Batch{Charges: []Charge{c, never}, Budget: budget}
		tab.Decide(at, t)
		return !t.Decisions[0].Over
	}
	if at := now + Time(d.RetryAfter); !would(at) || would(at-1) {
		tb.Fatalf("at %d, %d hits of %+v: decision %+v; admitted after RetryAfter: %v, and 1 ns earlier: %v",
			now, c.Hits, *c.Policy, d, would(at), would(at-1))
	}
}

func TestOracles(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for n := range effort.Times(t, 300) {
		data := make([]byte, 6*100)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		data[0] = byte(n)
		compareWithOracle(t, data)
	}
}

func FuzzOracles(f *testing.F) {
	for i := range append(slices.Clip(oraclePolicies), calendarPolicies()...) {
		f.Add([]byte{byte(i), byte(i), 0, 0, 0, 0, 0, 0, 8, 0, 3, 0, 0, 0, 4, 0, 6, 1, 0, 0})
	}
	f.Fuzz(func(t *testing.T, data []byte) { compareWithOracle(t, data) })
}
