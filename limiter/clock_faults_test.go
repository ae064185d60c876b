package limiter_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
)

// A badClock simulates a machine whose clock is set back and forth, jitters, repeats seconds and is
// suspended, and a [clock.Clock] that follows it.
type badClock struct {
	*clock.Clock
	r       *rand.Rand
	wall    limiter.Time
	elapsed time.Duration
	// moved is the elapsed time of the last change of the wall clock.
	moved time.Duration
	jumps int
}

func newBadClock(r *rand.Rand, start limiter.Time) *badClock {
	b := &badClock{r: r, wall: start}
	b.Clock = clock.FromFunc(func() (limiter.Time, time.Duration) { return b.wall, b.elapsed })
	return b
}

// set moves only the wall clock.
func (b *badClock) set(d time.Duration) {
	b.wall += limiter.Time(d)
	b.moved = b.elapsed
	b.jumps++
}

// next advances time by part of a span, or injects a fault, and returns the time of the clock.
func (b *badClock) next(t *testing.T, span time.Duration) limiter.Time {
	t.Helper()
	const second = limiter.Time(time.Second)
	d := time.Duration(b.r.Int64N(int64(span) / 8))
	switch n := b.r.IntN(100_000); {
	case n < 10:
		b.set(-time.Hour)
	case n < 20:
		b.set(24 * time.Hour)
	case n < 40: // suspended: the monotonic clock stops
		b.set(time.Duration(b.r.Int64N(int64(8 * time.Hour))))
	case n < 200: // a leap second, as the kernel implements it
		b.wall += second - b.wall%second
		b.set(-time.Second)
	case n < 2_000: // corrected, by up to a second
		b.set(time.Duration(b.r.Int64N(int64(2*time.Second))) - time.Second)
	case n < 22_000: // frequent small steps
		b.set(time.Duration(b.r.Int64N(int64(span)/50)) - span/100)
	case n < 42_000: // no time passes
		d = 0
	}
	b.elapsed += d
	b.wall += limiter.Time(d)
	now := b.At(b.elapsed)
	if now != b.wall && b.elapsed-b.moved >= 100*time.Millisecond {
		t.Fatalf("%v after it moved, the clock is off by %v", b.elapsed-b.moved, time.Duration(now-b.wall))
	}
	return now
}

// A witness checks the guarantee of an algorithm using only the admitted hits. Its time is the
// newest time of a charge; late hits count at that time. A peek or an uncounted denial does not
// change it.
type witness struct {
	newest limiter.Time
	// end is the end of the fixed window, and admitted the number of hits in it.
	end      limiter.Time
	admitted uint64
	// hits are the times of the hits in the last sliding window.
	hits []limiter.Time
	// permits are the expiry times of held permits, by lease.
	permits map[uint64]limiter.Time
	// level is the time until the hits of a bucket have drained, at the newest time.
	level time.Duration
	full  limiter.Time // when the bucket is unused again, including counted denied hits
}

// tooFar reports whether the counter began so far ahead of o that it starts again.
func (w *witness) tooFar(o op) bool {
	p, began := o.policy, int64(w.newest)
	switch p.Algorithm {
	case limiter.FixedWindow:
		began = int64(w.end) - int64(p.Window)
	case limiter.SlidingWindow:
		began -= began % (int64(p.Window) / int64(p.SubWindows))
	case limiter.TokenBucket, limiter.LeakyBucket:
		size, debt := bucketSize(p)
		began = int64(w.full) - int64(size+debt)
	case limiter.SlidingLog, limiter.Concurrency:
	}
	return tooFar(began, int64(o.now))
}

// bucketSize returns the time until a full bucket has drained, and its highest debt.
func bucketSize(p *limiter.Policy) (size, debt time.Duration) {
	interval := p.Window / time.Duration(p.Limit)
	if p.Algorithm == limiter.TokenBucket {
		return time.Duration(p.Burst) * interval, p.Window
	}
	hold := min(p.MaxWait, time.Duration(p.MaxWaiting)*interval)
	return time.Duration(p.Slack+1) * interval, max(p.Window, hold)
}

// check records a decision, or describes the violation.
func (w *witness) check(o op, a answer) string {
	p := o.policy
	if a.wait > p.MaxWait || a.wait > o.budget {
		return "the wait exceeds its maximum"
	}
	moves := p.Algorithm == limiter.SlidingLog && p.CountRefused && a.over && o.hits > 0 // a full log: the newest hit replaces the oldest
	if a.charged == 0 && !moves {
		return ""
	}
	if w.tooFar(o) {
		w.newest, w.end, w.level, w.full, w.hits = o.now, -1<<62, 0, 0, nil
	}
	passed := o.hits
	if a.over {
		passed = 0
	}
	since := time.Duration(0)
	if o.now > w.newest {
		since, w.newest = time.Duration(o.now-w.newest), o.now
	}
	// Each permit has its own start, and its expiry is rounded up to a millisecond.
	maps.DeleteFunc(w.permits, func(_ uint64, end limiter.Time) bool {
		return end <= w.newest || tooFar(int64(end)+int64(time.Millisecond-p.Window), int64(o.now))
	})
	if o.refund { // of a lease
		delete(w.permits, o.hits)
		return ""
	}
	switch p.Algorithm {
	case limiter.FixedWindow:
		switch end := o.now + limiter.Time(a.reset); {
		case end < w.end:
			return "an older window"
		case end > w.end:
			w.end, w.admitted = end, 0
		}
		if w.admitted += passed; w.admitted > uint64(p.Limit) {
			return "more than the limit in a window"
		}
	case limiter.SlidingWindow, limiter.SlidingLog:
		expired := w.newest - limiter.Time(p.Window)
		w.hits = slices.DeleteFunc(w.hits, func(t limiter.Time) bool { return t <= expired })
		for range passed {
			w.hits = append(w.hits, w.newest)
		}
		if len(w.hits) > int(p.Limit) {
			return "more than the limit in an interval as long as the window"
		}
	case limiter.Concurrency:
		if w.permits[o.lease] = o.now + limiter.Time(p.Window); len(w.permits) > int(p.Limit) {
			return "more than the limit at once"
		}
	default:
		interval := p.Window / time.Duration(p.Limit)
		size, debt := bucketSize(p)
		full := max(w.full, o.now)
		if w.full = full + limiter.Time(o.hits)*limiter.Time(interval); a.over {
			w.full = max(full, min(w.full, o.now+limiter.Time(size+debt)))
		}
		if p.Algorithm == limiter.LeakyBucket {
			size = time.Duration(p.Slack+1)*interval + min(p.MaxWait, time.Duration(p.MaxWaiting)*interval)
		}
		if w.level = max(0, w.level-since) + time.Duration(passed)*interval; w.level > size {
			return "more than the bucket holds"
		}
	}
	return ""
}

// TestClockFaults decides with a faulty clock, starting in 1970, as a machine without a battery
// does, 2026, 2038 and 2106, when seconds overflow 31 and 32 bits. All decisions equal those of the
// plain models, and independently of these no limit is exceeded, no window is older than the
// previous one and no delay longer than allowed.
func TestClockFaults(t *testing.T) {
	t.Parallel()
	for _, g := range games() {
		if g.mixed {
			continue // changing limits have no common bound
		}
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			r := newRand(t)
			var admitted, denied, jumps int
			for _, start := range []time.Time{
				time.Unix(10, 0),
				time.Date(2026, 11, 21, 23, 59, 0, 0, time.UTC),
				time.Unix(1<<31, 0).Add(-time.Hour),
				time.Unix(1<<32, 0).Add(-time.Hour),
			} {
				a, d, j := faultyTimes(t, r, g, limiter.Time(start.UnixNano()))
				admitted, denied, jumps = admitted+a, denied+d, jumps+j
			}
			// Totals of all starts: with one of them the clock is so far ahead that nothing is
			// admitted.
			if all := admitted + denied; admitted < all/100 || denied < all/100 || jumps < all/10 {
				t.Errorf("weak test: %d admitted, %d denied, %d jumps of the clock", admitted, denied, jumps)
			}
		})
	}
}

// faultyTimes plays from a start time, and returns the number of admitted and denied decisions and
// of clock steps.
func faultyTimes(t *testing.T, r *rand.Rand, g game, start limiter.Time) (admitted, denied, jumps int) {
	t.Helper()
	tab, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	must.OK(t, err)
	clock, b, counts := newBadClock(r, start), &limiter.Batch{}, map[bool]int{}
	const counters = 2
	var states [counters][]int64
	var witnesses [counters]witness
	for i := range witnesses {
		witnesses[i].newest, witnesses[i].end = -1<<62, -1<<62 // before all times of the test
		witnesses[i].permits = map[uint64]limiter.Time{}
	}
	var leases recorder
	steps := effort.Times(t, clockSteps)
	if g.span > time.Hour { // not beyond 2116, the end of the time range
		steps = min(steps, 5000)
	}
	for step := range steps {
		o := op{counter: r.IntN(counters), hits: 1, policy: g.policies[r.IntN(len(g.policies))], now: clock.next(t, g.span)}
		switch r.IntN(8) {
		case 0:
			o.hits = 0
		case 1:
			o.hits = uint64(r.IntN(int(min(o.policy.Limit, 20))) + 1)
		case 2, 3:
			if o.policy.UsesLeases() {
				o.hits, o.refund = leases.recentLease(o.counter, r.Uint64N(6)), true
			}
		}
		if g.budgets != nil {
			o.budget = g.budgets[r.IntN(len(g.budgets))]
		}
		got := call(tab, b, o)
		if o.lease = b.Lease(0); o.lease > 0 {
			leases.recordLease(o.counter, o.lease)
		}
		state, want := g.model(states[o.counter], o)
		states[o.counter] = state
		if !got.same(want, o, true) {
			t.Fatalf("step %d from %v: %v\n got %v\nwant %v", step, start, o, got, want)
		}
		if wrong := witnesses[o.counter].check(o, got); wrong != "" {
			t.Fatalf("step %d from %v: %v: %s:\n%v", step, start, o, wrong, got)
		}
		counts[got.over]++
	}
	return counts[false], counts[true], clock.jumps
}
