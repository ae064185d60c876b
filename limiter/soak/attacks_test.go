package soak

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// capacity returns the number of hits that an unused counter admits at one instant.
func capacity(p *limiter.Policy) int64 {
	switch p.Algorithm {
	case limiter.TokenBucket:
		return int64(p.Burst)
	case limiter.LeakyBucket:
		return int64(p.Slack) + 1 + int64(min(p.MaxWait/interval(p), time.Duration(p.MaxWaiting)))
	default:
		return int64(p.Limit)
	}
}

// refunds attacks a counter: it charges the counter together with a full one, so that the request
// is denied, and then refunds hits that were never charged. It must not gain more hits than the
// decisions of the refunds report. A counter never exceeds its full capacity. A refund in the same
// request as its charge gains nothing.
func refunds(b *round) {
	const counters = 8
	p := &b.policy
	t, clock := b.table(64<<10), newClock(epoch)
	full := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 0, Window: time.Second}
	var above, net atomic.Int64
	tries := b.scale(60_000)
	all := b.together(func(w *worker) {
		w.refunded = map[int]int64{}
		for range tries {
			n := w.rand.IntN(counters)
			hits := 1 + w.rand.Uint64N(3)
			c := limiter.Charge{ID: counterID(n, false), Policy: p, Hits: hits}
			back := c
			back.Refund = true
			batch := &w.batch
			batch.Reset()
			batch.Clock = clock.now
			switch w.rand.IntN(4) {
			case 0: // denied, so nothing is charged
				batch.Charges = append(batch.Charges, c, limiter.Charge{ID: counterID(-2, false), Policy: full, Hits: 1})
			case 1: // a charge and its refund in one request
				back.Group = 1
				batch.Charges = append(batch.Charges, c, back)
			case 2: // the attack
				batch.Charges = append(batch.Charges, back)
			default:
				w.charge(t, clock, n, c)
				continue
			}
			t.Decide(epoch, batch)
			w.ops++
			d := batch.Decisions
			switch {
			case d[0].Remaining > uint64(capacity(p)):
				above.Add(1)
			case len(d) == 2 && d[0].Denied && d[0].Charged != 0:
				net.Add(1)
			case len(d) == 1:
				w.refunded[n] += int64(d[0].Charged)
			}
		}
	})
	if above.Load() > 0 {
		b.faultf("in %d decisions Remaining exceeds the capacity", above.Load())
	}
	if net.Load() > 0 {
		b.faultf("%d denied requests were charged", net.Load())
	}
	for n := range counters {
		var gave int64
		for _, w := range all {
			gave += w.refunded[n]
		}
		got := sum(collectGrants(all, n))
		b.admitted += got
		b.recordPeak(fmt.Sprintf("counter %d, %d refunded", n, gave), got-gave, capacity(p))
	}
}

// groups charges one to three of several counters at once, all or nothing. Every counter keeps its
// bound. A denied group leaves no charge.
func groups(b *round) {
	const counters = 4
	p := &b.policy
	rounds := b.scale(2000)
	for round := range rounds {
		t, clock := b.table(4<<10), newClock(epoch)
		all := b.together(func(w *worker) {
			w.refunded = map[int]int64{}
			for range 20 {
				batch := &w.batch
				batch.Reset()
				batch.Clock = clock.now
				numbers := w.rand.Perm(counters)[:1+w.rand.IntN(3)]
				for _, n := range numbers {
					batch.Charges = append(batch.Charges, limiter.Charge{
						ID: counterID(n, false), Policy: p, Hits: 1 + w.rand.Uint64N(uint64(capacity(p))),
					})
				}
				t.Decide(epoch, batch)
				w.ops++
				for i, n := range numbers {
					d := batch.Decisions[i]
					if d.Denied != batch.Denied || batch.Denied && d.Charged > 0 {
						w.refunded[n]++
					}
					w.grant(n, grant{hits: int64(d.Charged)})
				}
			}
		})
		last := &worker{round: b}
		for n := range counters {
			for _, w := range all {
				if w.refunded[n] > 0 {
					b.faultf("round %d: a denied group was charged on counter %d", round, n)
				}
			}
			got := sum(collectGrants(all, n))
			b.admitted += got
			b.recordPeak(fmt.Sprintf("counter %d", n), got, capacity(p))
			d := last.decide(t, epoch, limiter.Charge{ID: counterID(n, false), Policy: p})
			if int64(d.Before) != got {
				b.faultf("round %d: counter %d has used %d hits, but admitted %d", round, n, d.Before, got)
			}
		}
		if len(b.faults) > 10 {
			return
		}
	}
}

// passingGroups is groups while time passes, so that a charge drains before it is undone.
func passingGroups(b *round) {
	const counters = 3
	p := &b.policy
	step := max(1, interval(p)/16)
	t, clock := b.table(64<<10), newClock(epoch)
	var ops atomic.Int64
	most := int64(b.scale(200_000))
	all := b.together(func(w *worker) {
		for ops.Add(1) < most {
			batch := &w.batch
			batch.Reset()
			batch.Clock = clock.now
			now := clock.now()
			numbers := w.rand.Perm(counters)[:1+w.rand.IntN(2)]
			for _, n := range numbers {
				batch.Charges = append(batch.Charges, limiter.Charge{ID: counterID(n, false), Policy: p, Hits: 1})
			}
			t.Decide(now, batch)
			w.ops++
			to := clock.now()
			clock.advance(step)
			for i, n := range numbers {
				if d := batch.Decisions[i]; d.Charged > 0 {
					w.grant(n, grant{from: now, to: to, end: now + limiter.Time(d.Reset), hits: int64(d.Charged)})
				}
			}
		}
	})
	for n := range counters {
		b.checkBound(fmt.Sprintf("counter %d", n), p, collectGrants(all, n))
	}
}

// waiting delays calls, some of which are cancelled. The others start at the intervals of the
// policy. Neither the delay nor the number of waiting calls exceeds its maximum.
func waiting(b *round) {
	p := &b.policy
	step := interval(p)/4 + time.Duration(b.rand.Int64N(int64(interval(p))))
	t, clock := b.table(64<<10), newClock(epoch)
	most, ops := int64(b.scale(100_000)), atomic.Int64{}
	var late, tooLong atomic.Int64
	all := b.together(func(w *worker) {
		for n := ops.Add(1); n < most; n = ops.Add(1) {
			if n%16 == 0 {
				clock.advance(step)
			}
			if !w.charge(t, clock, 0, limiter.Charge{ID: counterID(0, false), Policy: p, Hits: 1}) {
				continue
			}
			d := &w.batch.Decisions[0]
			if d.Wait > p.MaxWait || d.Wait > time.Duration(p.MaxWaiting)*interval(p) {
				tooLong.Add(1)
			}
			if d.Wait > 0 && w.rand.IntN(4) == 0 {
				if t.Cancel(clock.now(), &w.batch); w.batch.Decisions[0].Charged == 0 {
					w.grants[0] = w.grants[0][:len(w.grants[0])-1]
					late.Add(1)
				}
			}
		}
	})
	if tooLong.Load() > 0 {
		b.faultf("%d calls waited longer than the maximum", tooLong.Load())
	}
	if late.Load() == 0 {
		b.faultf("no cancelled call returned its start time")
	}
	grants := collectGrants(all, 0)
	b.checkBound("released", p, grants)
	b.recordPeak("waiting", mostWaiting(grants), int64(p.MaxWaiting))
}

// mostWaiting returns the maximum number of concurrently waiting hits.
func mostWaiting(grants []grant) (most int64) {
	type event struct {
		at   limiter.Time
		hits int64
	}
	var all []event
	for _, g := range grants {
		// A worker that read the clock early may get its start time late.
		if g.from > g.requestedAt {
			all = append(all, event{g.requestedAt, g.hits}, event{g.from, -g.hits})
		}
	}
	slices.SortFunc(all, func(a, b event) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(a.hits - b.hits)
	})
	var now int64
	for _, e := range all {
		now += e.hits
		most = max(most, now)
	}
	return most
}

// realTime hits counters of all kinds with the real clock, among ten thousand new ones a second,
// all of which fit.
func realTime(b *round) {
	const counters = 4
	kinds := everyKind()
	var policies []limiter.Policy
	for _, k := range kinds {
		policies = append(policies, k.policy)
	}
	t, clock := b.table(64<<20, policies...), &clock{start: time.Now()}
	length := time.Duration(b.scale(3000)) * time.Millisecond
	var next atomic.Int64
	all := b.together(func(w *worker) {
		for time.Since(clock.start) < length {
			k := w.rand.IntN(len(kinds))
			n := w.rand.IntN(counters)
			p := &kinds[k].policy
			switch what := w.rand.IntN(8); {
			case what == 0 && time.Duration(next.Load())*100*time.Microsecond < time.Since(clock.start):
				other := len(kinds)*counters + int(next.Add(1))
				w.decide(t, clock.now(), limiter.Charge{ID: counterID(other, false), Policy: p, Hits: 1})
			case what == 1:
				w.decide(t, clock.now(), limiter.Charge{ID: counterID(k*counters+n, false), Policy: p})
			default:
				w.charge(t, clock, k*counters+n, limiter.Charge{
					ID: counterID(k*counters+n, false), Policy: p, Hits: 1 + w.rand.Uint64N(2),
				})
			}
		}
	})
	if s := t.Stats(); s.Evicted > 0 {
		b.faultf("%+v, want none evicted", s)
	}
	for k := range kinds {
		for n := range counters {
			b.checkBound(fmt.Sprintf("%s, counter %d", kinds[k].name, n), &kinds[k].policy, collectGrants(all, k*counters+n))
		}
	}
}
