package limiter

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A reference is one counter under the rules of docs/algorithms.md, "When the clock goes back". hit
// returns the number of hits that count at a time, and whether n more are denied. It charges hits
// that are not denied.
type reference interface {
	hit(now Time, n uint64) (before uint64, over bool)
}

const hour = Time(time.Hour)

// referenceWindow is a fixed window that begins at start.
type referenceWindow struct {
	p           *Policy
	start       Time
	count       uint64
	hasBeenUsed bool
}

func (r *referenceWindow) hit(now Time, n uint64) (before uint64, over bool) {
	w := Time(r.p.Window)
	start, count := now-now%w, uint64(0)
	if r.hasBeenUsed && start <= r.start && r.start <= now+hour {
		start, count = r.start, r.count
	}
	if over = count+n > uint64(r.p.Limit); !over && n > 0 {
		*r = referenceWindow{p: r.p, start: start, count: count + n, hasBeenUsed: true}
	}
	return count, over
}

// referenceParts is a sliding window: the hits of each sub-window, by its start.
type referenceParts struct {
	p      *Policy
	hits   map[Time]uint64
	newest Time
}

func (r *referenceParts) hit(now Time, n uint64) (before uint64, over bool) {
	length := Time(r.p.Window) / Time(r.p.SubWindows)
	at, hits := now-now%length, map[Time]uint64{}
	if len(r.hits) > 0 && r.newest <= now+hour {
		at, hits = max(at, r.newest), r.hits
	}
	for start, count := range hits {
		if start >= at-Time(r.p.Window) {
			before += count
		}
	}
	if over = before+n > uint64(r.p.Limit); !over && n > 0 {
		hits[at] += n
		r.hits, r.newest = hits, at
	}
	return before, over
}

// referenceLog is a sliding log: the time of each hit, newest last.
type referenceLog struct {
	p    *Policy
	hits []Time
}

func (r *referenceLog) hit(now Time, n uint64) (before uint64, over bool) {
	at, hits := now, r.hits
	if len(hits) > 0 {
		if newest := hits[len(hits)-1]; newest > now+hour {
			hits = nil
		} else {
			at = max(now, newest)
		}
	}
	var counting []Time
	for _, t := range hits {
		if t > at-Time(r.p.Window) {
			counting = append(counting, t)
		}
	}
	before = uint64(len(counting))
	if over = before+n > uint64(r.p.Limit); !over && n > 0 {
		for range n {
			counting = append(counting, at)
		}
		r.hits = counting
	}
	return before, over
}

// referenceBucket is a token or leaky bucket: the time at which it is unused again.
type referenceBucket struct {
	p    *Policy
	full Time
}

func (r *referenceBucket) hit(now Time, n uint64) (before uint64, over bool) {
	interval, size := Time(r.p.Window)/Time(r.p.Limit), Time(r.p.Burst)
	if r.p.Algorithm == LeakyBucket {
		size = Time(r.p.Slack) + 1
	}
	full := max(now, r.full)
	if full-size*interval-Time(r.p.Window) > now+hour {
		full = now
	}
	before = uint64((full - now + interval - 1) / interval)
	next := full + Time(n)*interval
	if over = next-now > size*interval; n > 0 && !over {
		r.full = next
	}
	return before, over
}

// referencePermits is a concurrency limit: the time at which each permit was acquired. A request
// acquires one permit regardless of its hits.
type referencePermits struct {
	p        *Policy
	acquired []Time
}

func (r *referencePermits) hit(now Time, n uint64) (before uint64, over bool) {
	var held []Time
	for _, t := range r.acquired {
		if t+Time(r.p.Window) > now && t <= now+hour {
			held = append(held, t)
		}
	}
	before, n = uint64(len(held)), min(n, 1)
	if over = before+n > uint64(r.p.Limit); !over && n > 0 {
		held = append(held, now)
		r.acquired = held
	}
	return before, over
}

func newReference(p *Policy) reference {
	switch p.Algorithm {
	case FixedWindow:
		return &referenceWindow{p: p}
	case SlidingWindow:
		return &referenceParts{p: p}
	case SlidingLog:
		return &referenceLog{p: p}
	case Concurrency:
		return &referencePermits{p: p}
	default:
		return &referenceBucket{p: p}
	}
}

// tick divides all times of the test. It is longer than the millisecond to which expiries of
// permits are rounded.
const tick = 10 * ms

// randomPolicy returns a policy whose sub-windows and intervals are multiples of tick.
func randomPolicy(r *rand.Rand) *Policy {
	windows := []time.Duration{time.Second, time.Minute, time.Hour, 3 * time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, year, MaxWindow}
	p := &Policy{
		Algorithm: []Algorithm{FixedWindow, SlidingWindow, SlidingLog, TokenBucket, LeakyBucket, Concurrency}[r.IntN(6)],
		Limit:     []uint32{1, 2, 4, 5}[r.IntN(4)], Window: windows[r.IntN(len(windows))],
	}
	switch p.Algorithm {
	case SlidingWindow:
		p.SubWindows = []uint32{1, 2, 4, 10}[r.IntN(4)]
	case TokenBucket:
		p.Burst = 1 + r.Uint32N(8)
		for uint64(p.Burst) > p.MaxHits() {
			p.Burst--
		}
	case LeakyBucket:
		p.Slack = r.Uint32N(8)
		for uint64(p.Slack)+1 > p.MaxHits() {
			p.Slack--
		}
	default:
	}
	if r.IntN(2) > 0 {
		p.Prepare()
	}
	return p
}

// TestStepsOfTheClock charges hits with a clock that advances, steps ahead and steps back by
// milliseconds to decades. Each decision must be as documented.
func TestStepsOfTheClock(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 17))
		p := randomPolicy(r)
		decide, ref := inTable(newTable(t, MinBytes)), newReference(p)
		base := Time(1_700_000_000)*sec + Time(r.Int64N(int64(MaxWindow)))/tick*tick
		now, step := base, func() Time { // a step of any relevant size
			most := []int64{int64(sec), int64(time.Minute), int64(time.Hour), 2 * int64(time.Hour), int64(p.Window), 2*int64(p.Window) + int64(hour), int64(4 * year), int64(20 * year)}
			return Time(r.Int64N(most[r.IntN(len(most))])) / tick * tick
		}
		for n := range 60 {
			switch r.IntN(8) {
			case 0:
				now += step()
			case 1:
				now -= step()
			case 2:
				now = base
			case 3: // around the step at which a counter starts again
				now += Time([]int64{-1, 1}[r.IntN(2)]) * (hour + Time(r.IntN(3)-1)*tick)
			case 4: // around that step plus a window
				now -= Time(p.Window) + hour + Time(r.IntN(3)-1)*tick
			default:
				now += Time(r.Int64N(int64(p.Window))) / 4 / tick * tick
			}
			now = max(base-Time(2*year), min(now, base+Time(20*year)))
			hits := uint64(r.IntN(4))
			before, over := ref.hit(now, hits)
			got := decide(now, Charge{Policy: p, Hits: hits}, 0)
			if hits > 0 && got.Over != over || got.Before != before {
				t.Fatalf("seed %d, %+v, step %d, %v after base, %d hits:\n got %+v\nwant %d hits before, over %v", seed, p, n, time.Duration(now-base), hits, got, before, over)
			}
		}
	}
}
