package limiter_test

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A model is the sequential specification of an algorithm: it returns the state of a counter after
// o, and the answer. nil is a new counter. States are immutable.
type model func(state []int64, o op) ([]int64, answer)

func fits(used, hits, limit int64) bool { return used+hits <= limit }

// tooFar reports whether a counter that began at a time starts again.
func tooFar(began, now int64) bool { return began > now+int64(time.Hour) }

// floor divides a time, which may be before 1970, and rounds down.
func floor(t limiter.Time, unit time.Duration) int64 {
	n := int64(t) / int64(unit)
	if int64(t)%int64(unit) < 0 {
		n--
	}
	return n
}

// fixedWindow's state is the end of the window and the hits in it.
func fixedWindow(s []int64, o op) ([]int64, answer) {
	p, now, hits := o.policy, int64(o.now), int64(o.hits)
	limit := int64(p.Limit)
	end, used := (floor(o.now, p.Window)+1)*int64(p.Window), int64(0)
	if s != nil && s[0] > now && !tooFar(s[0]-int64(p.Window), now) {
		end, used = s[0], s[1]
	}
	a := answer{before: uint64(used), reset: time.Duration(end - now)}
	after := used
	switch {
	case o.refund:
		after = max(0, used-hits)
		a.charged = uint64(used - after)
	case fits(used, hits, limit):
		after = used + hits
		a.charged = o.hits
	default:
		a.over, a.retry = true, a.reset
		if hits > limit {
			a.retry = limiter.Never
		}
		if p.CountRefused {
			after = used + hits
			a.charged = o.hits
		}
	}
	if !a.over {
		a.remaining = uint64(max(0, limit-after))
	}
	if after == used {
		return s, a
	}
	return []int64{end, after}, a
}

// slidingWindow's state is pairs of sub-window and hits, oldest first; the last one is current.
func slidingWindow(s []int64, o op) ([]int64, answer) {
	p, hits := o.policy, int64(o.hits)
	limit, k := int64(p.Limit), int64(p.SubWindows)
	sub := p.Window / time.Duration(k)
	epoch := floor(o.now, sub)
	n := len(s)
	if n > 0 && tooFar(s[n-2]*int64(sub), int64(o.now)) {
		n = 0
	} else if n > 0 {
		epoch = max(epoch, s[n-2])
	}
	var live []int64
	used := int64(0)
	for i := 0; i < n; i += 2 {
		if s[i] >= epoch-k {
			live = append(live, s[i], s[i+1])
			used += s[i+1]
		}
	}
	untilExpiry := func(epoch int64) time.Duration { // until the hits of a sub-window cease to count
		return time.Duration((epoch+k+1)*int64(sub) - int64(o.now))
	}
	a := answer{before: uint64(used)}
	after := slices.Clone(live)
	add := func(n int64) {
		if m := len(after); m == 0 || after[m-2] != epoch {
			after = append(after, epoch, 0)
		}
		after[len(after)-1] += n
	}
	switch {
	case o.refund:
		if m := len(after); m > 0 && after[m-2] == epoch {
			n := min(hits, after[m-1])
			add(-n)
			a.charged = uint64(n)
		}
	case fits(used, hits, limit):
		add(hits)
		a.charged = o.hits
	default:
		a.over, a.retry = true, limiter.Never
		if p.CountRefused {
			add(hits)
			a.charged = o.hits
		}
		counted := int64(0)
		for i := 1; i < len(after); i += 2 {
			counted += after[i]
		}
		for i := 0; i < len(after) && hits <= limit && !fits(counted, hits, limit); i += 2 {
			counted -= after[i+1]
			a.retry = untilExpiry(after[i])
		}
	}
	total, newest := int64(0), int64(-1)
	for i := 0; i < len(after); i += 2 {
		total += after[i+1]
		if after[i+1] > 0 {
			newest = after[i]
		}
	}
	if !a.over {
		a.remaining = uint64(max(0, limit-total))
	}
	switch {
	case a.over:
		a.reset = a.retry
		if a.retry == limiter.Never {
			a.reset = p.Window
		}
	case newest >= 0:
		a.reset = untilExpiry(newest)
	default:
		a.resetUnspecified = true
	}
	if a.charged == 0 {
		return s, a
	}
	return after, a
}

// slidingLog's state is the time of the last change, at which late hits count, and the times of the
// hits, oldest first.
func slidingLog(s []int64, o op) ([]int64, answer) {
	p, now, hits := o.policy, int64(o.now), int64(o.hits)
	limit := int64(p.Limit)
	var all []int64
	if s != nil && !tooFar(s[0], now) {
		now, all = max(now, s[0]), slices.Clone(s[1:])
	}
	live := slices.DeleteFunc(all, func(t int64) bool { return t <= now-int64(p.Window) })
	live = live[max(0, int64(len(live))-limit):] // an earlier limit may have been greater
	used := int64(len(live))
	late := func(t int64) time.Duration { return time.Duration(t + int64(p.Window) - int64(o.now)) }
	a := answer{before: uint64(used)}
	after, changed := slices.Clone(live), false
	add := func() {
		for range min(hits, limit) {
			after, changed = append(after, now), true
		}
		after = after[max(0, int64(len(after))-limit):]
	}
	switch {
	case o.refund:
		n := min(hits, used)
		after, changed = after[:used-n], n > 0
		a.charged = uint64(n)
	case fits(used, hits, limit):
		add()
		a.charged = o.hits
	default:
		a.over, a.retry = true, limiter.Never
		if p.CountRefused {
			add()
			a.charged = uint64(int64(len(after)) - used)
		}
		if hits <= limit {
			a.retry = late(after[int64(len(after))+hits-limit-1])
		}
	}
	if !a.over {
		a.remaining = uint64(limit - int64(len(after)))
	}
	switch {
	case a.over:
		a.reset = a.retry
		if a.retry == limiter.Never {
			a.reset = p.Window
		}
	case len(after) > 0:
		a.reset = late(after[len(after)-1])
	default:
		a.resetUnspecified = true
	}
	if !changed {
		return s, a
	}
	return append([]int64{now}, after...), a
}

// bucket models token and leaky buckets. Its state is the theoretical arrival time.
func bucket(s []int64, o op) ([]int64, answer) {
	p, now, hits := o.policy, int64(o.now), int64(o.hits)
	interval := int64(p.Window) / int64(p.Limit)
	size, hold := int64(p.Burst), int64(0)
	if p.Algorithm == limiter.LeakyBucket {
		size = int64(p.Slack) + 1
		hold = min(int64(p.MaxWait), int64(p.MaxWaiting)*interval, int64(o.budget))
	}
	if o.hits == 0 { // a peek does not depend on the budget
		hold = min(int64(p.MaxWait), int64(p.MaxWaiting)*interval)
	}
	tau := size * interval
	tat := now
	debt := max(int64(p.Window), min(int64(p.MaxWait), int64(p.MaxWaiting)*interval))
	if s != nil && !tooFar(s[0]-tau-debt, now) {
		tat = max(now, s[0])
	}
	a := answer{before: uint64((tat - now + interval - 1) / interval)}
	after := tat
	switch wait := tat + hits*interval - tau - now; {
	case o.refund:
		if tat-tau > now && p.Algorithm == limiter.LeakyBucket {
			break // start times of delayed hits are fixed
		}
		after = max(now, tat-hits*interval)
		a.charged = min(o.hits, a.before)
	case wait <= hold:
		after = tat + hits*interval
		a.charged = o.hits
		if hits > 0 {
			a.wait = time.Duration(max(0, wait))
		}
	default:
		a.over, a.retry = true, limiter.Never
		if p.CountRefused {
			after = min(tat+hits*interval, max(tat, now+tau+int64(p.Window)))
			a.charged = uint64((after - tat) / interval)
		}
		if hits*interval <= tau+hold {
			a.retry = time.Duration(after + hits*interval - tau - now - hold)
		}
	}
	if !a.over {
		// The maximum delay of this call.
		hold = min(hold, int64(o.budget))
		a.remaining = uint64(max(0, (now+tau+hold-after)/interval))
	}
	switch {
	case a.over:
		a.reset = a.retry
		if a.retry == limiter.Never {
			a.reset = p.Window
		}
	case after > now:
		a.reset = time.Duration(after - now)
	default:
		a.resetUnspecified = true
	}
	if after == tat {
		return s, a
	}
	return []int64{after}, a
}

// permits models a concurrency limit. Its state is the held leases and their expiry times.
func permits(s []int64, o op) ([]int64, answer) {
	const ms = time.Millisecond // expiries are rounded up to it
	var held []int64
	for i := 0; i < len(s); i += 2 {
		if s[i+1] > int64(o.now) && !tooFar(s[i+1]-int64(o.policy.Window+ms), int64(o.now)) {
			held = append(held, s[i], s[i+1])
		}
	}
	limit, used := int(o.policy.Limit), len(held)/2
	a := answer{before: uint64(used), reset: time.Second}
	at := func(lease uint64) int {
		for i := 0; i < len(held); i += 2 {
			if held[i] == int64(lease) {
				return i
			}
		}
		return -1
	}
	switch {
	case o.refund:
		if i := at(o.hits); i >= 0 {
			a.charged = 1
			held = slices.Delete(held, i, i+2)
		}
	case o.hits > 0 && used < limit:
		if a.charged = 1; o.lease < limiter.FirstLease || o.lease > limiter.LastLease || at(o.lease) >= 0 {
			a.before = math.MaxUint64 // not a valid lease of this counter
		}
		held = append(held, int64(o.lease), -floor(-o.now-limiter.Time(o.policy.Window), ms)*int64(ms))
	case o.hits > 0 || used > limit:
		a.over, a.retry = true, time.Second
	}
	if !a.over {
		a.remaining = uint64(max(0, limit-len(held)/2))
	}
	if a.charged == 0 {
		return s, a
	}
	return held, a
}

// A game is an algorithm and the parameters of its histories.
type game struct {
	name     string
	model    model
	policies []*limiter.Policy
	budgets  []time.Duration
	mixed    bool          // a policy is drawn for every request instead of every history
	span     time.Duration // duration of a history
	tick     time.Duration // times of events are multiples of tick
}

func games() []game {
	const second, day = time.Second, 24 * time.Hour
	counted := func(p limiter.Policy) []*limiter.Policy { // with and without denied hits
		q, r := p, p
		q.CountRefused = true
		p.Prepare()
		q.Prepare()
		return []*limiter.Policy{&p, &r, &q}
	}
	each := func(policies ...limiter.Policy) (all []*limiter.Policy) {
		for i := range policies {
			prepared := policies[i]
			prepared.Prepare()
			all = append(all, &prepared, &policies[i])
		}
		return all
	}
	return []game{
		{
			name: "fixed window", model: fixedWindow, span: 3 * second, tick: second,
			policies: counted(limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: second}),
		},
		{
			name: "sliding window", model: slidingWindow, span: 3 * second, tick: 250 * time.Millisecond,
			policies: counted(limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 6, Window: second, SubWindows: 4}),
		},
		{
			name: "sliding window of one", model: slidingWindow, span: 6 * second, tick: second,
			policies: counted(limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 6, Window: second, SubWindows: 1}),
		},
		{ // in UTC, as in the models
			name: "fixed window of the calendar", model: fixedWindow, span: 6 * day, tick: day / 4,
			policies: counted(limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: day, Calendar: limiter.NewCalendar(time.UTC, 1)}),
		},
		{
			name: "sliding window of the calendar", model: slidingWindow, span: 6 * day, tick: day / 4,
			policies: counted(limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 6, Window: day, SubWindows: 4, Calendar: limiter.NewCalendar(time.UTC, 1)}),
		},
		{
			name: "sliding log", model: slidingLog, span: 3 * second, tick: second / 4,
			policies: counted(limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 6, Window: second}),
		},
		{
			name: "log of changing size", model: slidingLog, mixed: true, span: 3 * second, tick: second / 4,
			policies: slices.Concat(
				counted(limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 2, Window: second}),
				counted(limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 6, Window: second}),
				counted(limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 12, Window: second}),
			),
		},
		{
			name: "token bucket", model: bucket, span: 2 * second, tick: 100 * time.Millisecond,
			policies: counted(limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 10, Window: second, Burst: 5}),
		},
		{
			name: "fine token bucket", model: bucket, span: 20 * time.Microsecond, tick: time.Microsecond,
			policies: counted(limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1e6, Window: second, Burst: 5}),
		},
		{
			name: "leaky bucket", model: bucket, span: 2 * second, tick: 100 * time.Millisecond,
			policies: counted(limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 10, Window: second, Slack: 3}),
		},
		{
			name: "leaky bucket with delays", model: bucket, span: 2 * second, tick: 100 * time.Millisecond,
			budgets: []time.Duration{0, 150 * time.Millisecond, second},
			policies: counted(limiter.Policy{
				Algorithm: limiter.LeakyBucket, Limit: 10, Window: second, Slack: 1, MaxWait: 400 * time.Millisecond, MaxWaiting: 3,
			}),
		},
		{
			name: "concurrency", model: permits, span: 3 * second, tick: second / 4,
			policies: each(limiter.Policy{Algorithm: limiter.Concurrency, Limit: 5, Window: second}),
		},
		{
			name: "concurrency of changing size", model: permits, mixed: true, span: 3 * second, tick: second / 4,
			policies: each(
				limiter.Policy{Algorithm: limiter.Concurrency, Limit: 2, Window: second},
				limiter.Policy{Algorithm: limiter.Concurrency, Limit: 6, Window: second},
				limiter.Policy{Algorithm: limiter.Concurrency, Limit: 12, Window: second},
			),
		},
	}
}
