package soak

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// interval returns the average time between two hits.
func interval(p *limiter.Policy) time.Duration { return p.Window / time.Duration(p.Limit) }

// lifetime returns an upper bound of the life of a counter after its last hit.
func lifetime(p *limiter.Policy) time.Duration {
	switch p.Algorithm {
	case limiter.SlidingWindow:
		return p.Window + 2*p.Window/time.Duration(p.SubWindows)
	case limiter.TokenBucket:
		return time.Duration(p.Burst+1) * interval(p)
	case limiter.LeakyBucket:
		return time.Duration(p.Slack+2)*interval(p) + p.MaxWait
	default:
		return p.Window
	}
}

// reclaimStorm hits two counters that expire all the time, while the slots of their two blocks
// change their owner.
func reclaimStorm(b *round) {
	const watched = 2
	p := &b.policy
	t, clock := b.table(4<<10, *p), newClock(epoch)
	tick := max(1, lifetime(p)/4)
	var ops atomic.Int64
	most := int64(b.scale(300_000))
	all := b.together(func(w *worker) {
		defer clock.leave(w)
		for n := ops.Add(1); n < most; n = ops.Add(1) {
			now := clock.read(w)
			if n%64 == 0 {
				clock.tick(now, tick)
			}
			number := w.rand.IntN(2 * watched)
			c := limiter.Charge{ID: counterID(number, true), Policy: p, Hits: 1 + w.rand.Uint64N(2)}
			if number < watched {
				w.chargeAt(t, clock, now, number, c)
				continue
			}
			// Two other counters in each tick, which fit.
			c.ID = counterID(int(int64(now-epoch)/int64(tick))*watched+number, true)
			w.decide(t, now, c)
		}
	})
	if s := t.Stats(); s.Reclaimed == 0 || s.Evicted > 0 {
		b.faultf("%+v, want reused slots and no evictions", s)
	}
	for n := range watched {
		b.checkBound(fmt.Sprintf("counter %d", n), p, collectGrants(all, n))
	}
}

// saturate keeps one counter full, while time passes in steps. It must admit the complete limit.
func saturate(b *round) {
	p := &b.policy
	step := p.Window/20 + time.Duration(b.rand.IntN(2))*time.Duration(b.rand.Int64N(int64(p.Window/50)))
	if p.Algorithm == limiter.TokenBucket || p.Algorithm == limiter.LeakyBucket {
		// A step longer than a full bucket takes to drain would waste capacity.
		step = time.Duration(1 + b.rand.Int64N((capacity(p)-1)*int64(interval(p))))
	}
	start := epoch + limiter.Time(b.rand.Int64N(int64(p.Window)))
	length := time.Duration(b.scale(4000)) * step
	t, clock := b.table(64<<10, *p), newClock(start)
	all := b.together(func(w *worker) {
		for now := start; now < start+limiter.Time(length); {
			now = clock.now()
			// The counter is full before time advances. Not every denial advances it, so many
			// workers charge at the same time.
			c := limiter.Charge{ID: counterID(0, false), Policy: p, Hits: 1}
			if !w.chargeAt(t, clock, now, 0, c) && w.rand.IntN(workers) == 0 {
				clock.simulated.CompareAndSwap(int64(now), int64(now)+int64(step))
			}
		}
	})
	b.checkBound("saturated", p, collectGrants(all, 0))
	if least := promised(p, start, clock.now()-limiter.Time(step), step); b.admitted < least {
		b.faultf("admitted %d in %v with steps of %v, want at least %d",
			b.admitted, time.Duration(clock.now()-start), step, least)
	}
}

// promised returns the number of hits that a counter must admit from start to the denial at end, if
// it was full at every step.
func promised(p *limiter.Policy, start, end limiter.Time, step time.Duration) int64 {
	length, limit := time.Duration(end-start), int64(p.Limit)
	switch p.Algorithm {
	case limiter.SlidingWindow:
		sub := (p.Window + time.Duration(p.SubWindows) - 1) / time.Duration(p.SubWindows)
		return limit * int64(length/(sub*time.Duration(p.SubWindows+1)+step))
	case limiter.SlidingLog:
		return limit * int64(length/(p.Window+step))
	case limiter.TokenBucket, limiter.LeakyBucket:
		size := int64(p.Burst)
		if p.Algorithm == limiter.LeakyBucket {
			size = int64(p.Slack) + 1
		}
		unit := int64((p.Window + time.Duration(limit) - 1) / time.Duration(limit)) // up to a nanosecond is lost per hit
		return (int64(length)+size*int64(interval(p)))/unit - 1
	default:
		first := (int64(start) + int64(p.Window) - 1) / int64(p.Window)
		return limit * (int64(end)/int64(p.Window) - first)
	}
}

// flood hits a million new values once each, while workers hit established counters. Each of those
// must admit exactly its limit.
func flood(b *round) {
	const established = 1000
	p := b.policy
	p.Limit, p.Burst, p.Slack, p.MaxWait = 20, 20, 19, 0
	values := int64(b.scale(1_000_000))
	t, clock := b.table(int64(8*established*limiter.CounterBytes(p)), p), newClock(epoch)
	single := func(n int, hits uint64) limiter.Charge {
		return limiter.Charge{ID: counterID(n, false), Policy: &p, Hits: hits}
	}
	first := &worker{round: b}
	for n := range established {
		first.charge(t, clock, n, single(n, 10))
	}
	var next atomic.Int64
	all := b.together(func(w *worker) {
		if w.number > 1 {
			for n := next.Add(1); n <= values; n = next.Add(1) {
				w.decide(t, clock.now(), single(established+int(n), 1))
			}
			return
		}
		for next.Load() < values {
			n := w.rand.IntN(established)
			w.charge(t, clock, n, single(n, w.rand.Uint64N(3)))
		}
	})
	for n := range established { // charge the remaining hits of each
		for first.charge(t, clock, n, single(n, 1)) {
		}
		got := sum(collectGrants(append(all, first), n))
		b.admitted += got
		b.recordPeak(fmt.Sprintf("established counter %d", n), got, 20)
		if got < 20 {
			b.faultf("established counter %d: admitted %d of 20", n, got)
		}
	}
	if s := t.Stats(); s.Evicted == 0 {
		b.faultf("the flood fits into the table: %+v", s)
	}
}
