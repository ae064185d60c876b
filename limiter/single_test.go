package limiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestNewSingle(t *testing.T) {
	for _, p := range []Policy{{}, {Algorithm: TokenBucket, Limit: 1, Window: time.Second}, {Algorithm: SlidingLog, Limit: MaxLog + 1, Window: time.Second}} {
		if s, err := NewSingle(p); err == nil || s != nil {
			t.Errorf("NewSingle(%+v) = %v, %v, want the error of Validate", p, s, err)
		}
	}
}

// everyPolicy returns policies of every kind.
func everyPolicy() []Policy {
	const minute = time.Minute
	return []Policy{
		{Algorithm: FixedWindow, Limit: 9, Window: minute},
		{Algorithm: SlidingWindow, Limit: 9, Window: minute, SubWindows: 10},
		{Algorithm: SlidingLog, Limit: 9, Window: minute},
		{Algorithm: TokenBucket, Limit: 9, Window: minute, Burst: 9},
		{Algorithm: TokenBucket, Limit: math.MaxUint32, Window: time.Second, Burst: 9},
		{Algorithm: LeakyBucket, Limit: 9, Window: minute, Slack: 8},
		{Algorithm: LeakyBucket, Limit: 9, Window: minute, Slack: 8, MaxWait: minute, MaxWaiting: 9},
	}
}

func TestSingleAllocatesNothing(t *testing.T) {
	for _, p := range everyPolicy() {
		for _, p.CountRefused = range []bool{false, true} {
			s, err := NewSingle(p)
			if err != nil {
				t.Fatal(err)
			}
			now := min1
			for _, step := range []Time{0, Time(p.Window) / 9, Time(p.Window) * 3} {
				if n := testing.AllocsPerRun(100, func() {
					var d Decision
					now += step
					for _, hits := range []uint64{1, 0, 7, 100} {
						s.Decide(now, hits, &d)
					}
					s.Refund(now, 1, &d)
				}); n != 0 {
					t.Errorf("%+v: %v allocations", p, n)
				}
			}
		}
	}
}

// A Single decides what a table does, also where words begin anew: those of buckets
// do every 146 years, or 9 if their unit is fine.
func TestSingleDecidesAsATable(t *testing.T) {
	const fineTurn = Time(1) << 58
	r := rand.New(rand.NewPCG(3, 4))
	for _, base := range []Time{0, 1_700_000_000 * sec, fineTurn * 7, fineTurn * 8, 1 << 62, math.MaxInt64 - 10*Time(MaxWindow)} {
		for _, p := range everyPolicy() {
			s, err := NewSingle(p)
			if err != nil {
				t.Fatal(err)
			}
			table, b := newTable(t, 0), &Batch{Charges: []Charge{take(counterID(1), &p)}, Budget: maxHold}
			unit := max(1, Time(p.Window)/Time(p.Limit)/2)
			now := base - 50*unit
			for i := range 500 {
				if now += unit * Time(r.IntN(3)); i%16 == 0 {
					now += unit * Time(r.IntN(160)-80)
				}
				var d Decision
				b.Charges[0].Hits = uint64(r.IntN(4)) / 2 * uint64(1+r.IntN(3))
				table.Decide(now, b)
				if ok := s.Decide(now, b.Charges[0].Hits, &d); d != b.Decisions[0] || ok == b.Refused {
					t.Fatalf("%+v, step %d, %d hits at %d (%d after the turn): %v, %+v; a table %+v", p, i, b.Charges[0].Hits, now, now-base, ok, d, b.Decisions[0])
				}
			}
		}
	}
}

// The first hit passes and uses up one, whatever the time and the algorithm.
func TestSingleAtAbsurdTimes(t *testing.T) {
	for _, now := range []Time{math.MinInt64, math.MaxInt64, -1, 0, 1, 1 << 62, -1 << 62, 1_700_000_000 * sec} {
		for _, p := range everyPolicy() {
			s, err := NewSingle(p)
			if err != nil {
				t.Fatal(err)
			}
			var d Decision
			if s.Decide(now, 0, &d); d.Before != 0 || d.Over || d.Reset <= 0 {
				t.Errorf("at %d, %+v: a look at a new counter: %+v", now, p, d)
			}
			if ok := s.Decide(now, 1, &d); !ok || d.Before != 0 || d.Charged != 1 || d.Reset <= 0 {
				t.Errorf("at %d, %+v: the first hit: %+v", now, p, d)
			}
			if s.Decide(now, 0, &d); d.Before != 1 {
				t.Errorf("at %d, %+v: a look after it: %+v", now, p, d)
			}
		}
	}
}
