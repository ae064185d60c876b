package limiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// everyPolicy returns policies of every kind.
func everyPolicy() []Policy {
	const minute, day = time.Minute, 24 * time.Hour
	return []Policy{
		{Algorithm: FixedWindow, Limit: 9, Window: minute},
		{Algorithm: SlidingWindow, Limit: 9, Window: minute, SubWindows: 10},
		{Algorithm: FixedWindow, Limit: 9, Window: day, Calendar: NewCalendar(time.UTC, 1)},
		{Algorithm: SlidingWindow, Limit: 9, Window: day, SubWindows: 10, Calendar: NewCalendar(time.UTC, 1)},
		{Algorithm: SlidingLog, Limit: 9, Window: minute},
		{Algorithm: TokenBucket, Limit: 9, Window: minute, Burst: 9},
		{Algorithm: TokenBucket, Limit: math.MaxUint32, Window: time.Second, Burst: 9},
		{Algorithm: LeakyBucket, Limit: 9, Window: minute, Slack: 8},
		{Algorithm: LeakyBucket, Limit: 9, Window: minute, Slack: 8, MaxWait: minute, MaxWaiting: 9},
		{Algorithm: Concurrency, Limit: 9, Window: minute},
	}
}

// TestWordsThatOverflow checks that counters decide like their oracles where words overflow: the
// words of buckets overflow every 146 years, or every 9 if their unit is fine.
func TestWordsThatOverflow(t *testing.T) {
	const fineTurn = Time(1) << 58
	r := rand.New(rand.NewPCG(3, 4))
	for _, base := range []Time{0, 1_700_000_000 * sec, fineTurn * 7, fineTurn * 8, 1 << 62, math.MaxInt64 - 10*Time(MaxWindow)} {
		for _, p := range everyPolicy() {
			if base >= maxStamp && (p.Algorithm == SlidingWindow || p.Algorithm == SlidingLog || p.Algorithm == Concurrency) {
				continue // beyond 2116, the end of the time range
			}
			for _, prepared := range []bool{false, true} {
				if prepared {
					p.Prepare()
				}
				decide, want := inTable(newTable(t, MinBytes)), newOracle(p.Algorithm)
				unit := max(1, Time(p.Window)/Time(p.Limit)/2)
				now := base - 50*unit
				for i := range 500 {
					if now += unit * Time(r.IntN(3)); i%16 == 0 {
						now += unit * Time(r.IntN(160)-80)
					}
					c := Charge{Policy: &p, Hits: uint64(r.IntN(4)) / 2 * uint64(1+r.IntN(3))}
					d := want.decide(now, c, time.Minute)
					d.Denied = d.Over
					if got := decide(now, c, time.Minute); got != d {
						t.Fatalf("%+v, step %d, %d hits at %d (%d after the overflow):\n got %+v\nwant %+v", p, i, c.Hits, now, now-base, got, d)
					}
				}
			}
		}
	}
}

// TestFirstHitAtAbsurdTimes checks that the first hit is admitted and counted as one, at any time
// and with any algorithm.
func TestFirstHitAtAbsurdTimes(t *testing.T) {
	for _, now := range []Time{math.MinInt64, math.MaxInt64, -1, 0, 1, 1 << 62, -1 << 62, 1_700_000_000 * sec} {
		for _, p := range everyPolicy() {
			for _, prepared := range []bool{false, true} {
				if prepared {
					p.Prepare()
				}
				decide := inTable(newTable(t, MinBytes))
				hit := func(hits uint64) Decision { return decide(now, Charge{Policy: &p, Hits: hits}, time.Minute) }
				if d := hit(0); d.Before != 0 || d.Over || d.Reset <= 0 {
					t.Errorf("at %d, %+v: a peek at a new counter: %+v", now, p, d)
				}
				if d := hit(1); d.Over || d.Before != 0 || d.Charged != 1 || d.Reset <= 0 {
					t.Errorf("at %d, %+v: the first hit: %+v", now, p, d)
				}
				if d := hit(0); d.Before != 1 {
					t.Errorf("at %d, %+v: a peek after the first hit: %+v", now, p, d)
				}
			}
		}
	}
}
