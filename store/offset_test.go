package store

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A rangeTest has the true offset of a store's clock, and the estimate from its replies.
type rangeTest struct {
	offsets offsetRange
	ahead   time.Duration
	now     time.Time
}

// addReply adds a reply with the given delays there and back, and returns the error of the
// estimate.
func (t *rangeTest) addReply(there, back time.Duration) time.Duration {
	at := limiter.Time(t.now.Add(there + t.ahead).Truncate(time.Microsecond).UnixNano())
	estimate := t.offsets.add(at, time.Duration(t.now.UnixNano()), there+back, 0)
	t.now = t.now.Add(there + back)
	return (time.Duration(estimate) - t.ahead).Abs()
}

// Single replies that are late by half a second, in either direction, do not change the estimate.
func TestLateRepliesMoveNothing(t *testing.T) {
	x := rangeTest{ahead: time.Hour, now: time.Unix(1_900_000_000, 0)}
	const quick, slow = 100 * time.Microsecond, 500 * time.Millisecond
	for n := range 100 {
		there, back := quick, quick
		switch n % 10 {
		case 0: // includes the first reply
			there = slow
		case 5:
			back = slow
		}
		off := x.addReply(there, back)
		if n > 0 && off > 2*time.Millisecond {
			t.Fatalf("reply %d, %v there and %v back: the estimate is wrong by %v", n, there, back, off)
		}
		x.now = x.now.Add(time.Second)
	}
}

// If either clock is set, by a small or a large step, the next reply corrects the estimate.
func TestClockSteps(t *testing.T) {
	x := rangeTest{now: time.Unix(1_900_000_000, 0)}
	for range 100 {
		x.addReply(100*time.Microsecond, 100*time.Microsecond)
	}
	for _, step := range []time.Duration{time.Hour, -time.Hour, 50 * time.Millisecond, -50 * time.Millisecond, 100 * 365 * 24 * time.Hour, 5 * time.Millisecond} {
		x.ahead += step
		x.now = x.now.Add(time.Second)
		x.addReply(100*time.Microsecond, 100*time.Microsecond)
		if off := x.addReply(100*time.Microsecond, 100*time.Microsecond); off > 3*time.Millisecond {
			t.Errorf("after a step of %v the estimate is wrong by %v", step, off)
		}
	}
}

// Round trips have any length, and clocks drift apart and are set. From the tenth reply after a
// step on, the error of the estimate is at most the shortest of the last ten round trips plus the
// drift since then.
func TestOffsetsOfDriftingClocks(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		x := rangeTest{ahead: time.Duration(random.Int64N(int64(time.Hour))), now: time.Unix(1_900_000_000, 0)}
		drift := (random.Float64() - 0.5) / 5000 // up to 100 µs a second
		var trips []time.Duration
		for n := range 2000 {
			if random.IntN(300) == 0 {
				x.ahead += time.Duration((random.Float64() - 0.5) * math.Pow(10, 9+3*random.Float64()))
				trips = trips[:0]
			}
			there, back := time.Duration(random.ExpFloat64()*1e6), time.Duration(random.ExpFloat64()*1e6)
			if random.IntN(10) == 0 {
				there *= 500
			}
			pause := time.Duration(random.Int64N(int64(time.Second)))
			off := x.addReply(there, back)
			trips = append(trips, there+back)
			shortest := time.Hour
			for _, trip := range trips[max(0, len(trips)-10):] {
				shortest = min(shortest, trip)
			}
			if most := shortest + 10*time.Second/driftParts*2; len(trips) >= 10 && off > most {
				t.Fatalf("seed %d, reply %d: the estimate is wrong by %v, want at most %v", seed, n, off, most)
			}
			x.now = x.now.Add(pause)
			x.ahead += time.Duration(drift * float64(pause))
		}
	}
}
