package store

import (
	"fmt"
	"math"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// counters are the counters of the differential test. Each has several policies, as if its limit
// had been edited; the policies agree in all fields that the name contains.
var counters = func() (all [][]*limiter.Policy) {
	const day = 24 * time.Hour
	edits := func(ps ...limiter.Policy) {
		var same []*limiter.Policy
		for i := range ps {
			ps[i].Prepare()
			same = append(same, &ps[i])
		}
		all = append(all, same)
	}
	fixed := func(limit uint32, w time.Duration, count bool) limiter.Policy {
		return limiter.Policy{Algorithm: limiter.FixedWindow, Limit: limit, Window: w, CountRefused: count}
	}
	ring := func(limit uint32, w time.Duration, k uint32, count bool) limiter.Policy {
		return limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: limit, Window: w, SubWindows: k, CountRefused: count}
	}
	log := func(limit uint32, w time.Duration, count bool) limiter.Policy {
		return limiter.Policy{Algorithm: limiter.SlidingLog, Limit: limit, Window: w, CountRefused: count}
	}
	token := func(limit uint32, w time.Duration, burst uint32, count bool) limiter.Policy {
		return limiter.Policy{Algorithm: limiter.TokenBucket, Limit: limit, Window: w, Burst: burst, CountRefused: count}
	}
	leaky := func(limit uint32, w time.Duration, slack uint32, wait time.Duration, waiting uint32, count bool) limiter.Policy {
		return limiter.Policy{
			Algorithm: limiter.LeakyBucket, Limit: limit, Window: w, Slack: slack,
			MaxWait: wait, MaxWaiting: waiting, CountRefused: count,
		}
	}
	atOnce := func(limit uint32, w time.Duration) limiter.Policy {
		return limiter.Policy{Algorithm: limiter.Concurrency, Limit: limit, Window: w}
	}
	edits(fixed(5, time.Minute, false), fixed(8, time.Minute, false), fixed(0, time.Minute, false))
	edits(fixed(9, time.Second, true), fixed(math.MaxUint32, time.Second, true))
	edits(fixed(math.MaxUint32, 52*day, false))
	edits(fixed(6, time.Minute, true), fixed(math.MaxUint32, time.Minute, true), fixed(3, time.Minute, false))
	penalised := func(p limiter.Policy, steps ...time.Duration) limiter.Policy {
		p.Penalty = limiter.NewPenalty(steps...)
		return p
	}
	edits(penalised(fixed(3, time.Second, true), time.Second, 3*time.Second, 9*time.Second), penalised(fixed(5, time.Second, false), 2*time.Second), fixed(3, time.Second, true))
	edits(penalised(fixed(3, time.Minute, false), time.Second, 2*time.Minute), penalised(fixed(0, time.Minute, true), time.Second))
	edits(penalised(ring(5, 10*time.Second, 10, false), 2*time.Second, 5*time.Second), ring(9, 10*time.Second, 10, true))
	edits(penalised(log(5, time.Second, true), time.Second, 2*time.Second, 3*time.Second), penalised(log(3, time.Second, false), 4*time.Second))
	edits(penalised(token(60, time.Minute, 5, false), time.Second, 10*time.Second), penalised(token(60, time.Minute, 9, true), time.Second, 2*time.Minute))
	edits(penalised(token(9e6, time.Second, 50, false), limiter.MaxPenalty-time.Second, limiter.MaxPenalty))
	edits(ring(5, time.Second, 10, false), ring(9, time.Second, 10, true))
	edits(ring(9, 7*time.Second, 7, true), ring(4, 7*time.Second, 7, false))
	edits(ring(math.MaxUint32, time.Second, 60, true), ring(20, time.Second, 60, false))
	edits(ring(7, limiter.MaxWindow, 1, false))
	edits(log(5, time.Second, false), log(9, time.Second, false), log(3, time.Second, true))
	edits(log(9, time.Minute, true))
	edits(log(0, time.Minute, false), log(2, time.Minute, false))
	edits(log(300, 10*time.Second, false))
	edits(token(7, time.Second, 5, false), token(9e6, time.Second, 50, false))
	edits(token(60, time.Minute, 9, true), token(60, time.Minute, 20, false))
	edits(token(math.MaxUint32, time.Second, math.MaxUint32, false), token(math.MaxUint32, time.Second, 9, true))
	edits(token(3e9, time.Second, 100, true), token(2, time.Second, 100, true)) // 1/3 ns
	edits(token(1, 52*day, 3, false), token(0, 52*day, 3, false))
	edits(leaky(100, time.Second, 3, 50*time.Millisecond, 3, false), leaky(50, time.Second, 1, 0, 0, false))
	edits(leaky(30, time.Second, 0, time.Minute, 100, true))
	edits(leaky(3e6, time.Second, 9, time.Second, 9, false), leaky(3, time.Second, 9, time.Second, 9, false))
	edits(atOnce(5, 10*time.Second), atOnce(2, 10*time.Second), atOnce(0, 10*time.Second))
	edits(atOnce(1, time.Second))
	edits(atOnce(limiter.MaxLog, time.Minute), atOnce(3, time.Minute))
	for _, c := range calendars() {
		by := func(p limiter.Policy) limiter.Policy { p.Calendar = c; return p }
		edits(by(fixed(5, day, false)), by(fixed(8, day, true)))
		edits(by(ring(5, day, 10, false)), by(ring(9, day, 10, true)))
		edits(by(ring(6, day, 1, true)))
	}
	reserve := func(p limiter.Policy, reservations uint32, ttl time.Duration, release bool) limiter.Policy {
		p.Reserve = limiter.NewReserve(reservations, ttl, release)
		return p
	}
	edits(reserve(fixed(50, time.Minute, false), 5, 10*time.Second, false), reserve(fixed(30, time.Minute, true), 3, 10*time.Second, true))
	edits(reserve(ring(60, 7*time.Second, 7, false), 6, time.Minute, true), reserve(ring(20, 7*time.Second, 7, true), 6, time.Minute, false))
	edits(reserve(token(60, time.Minute, 50, true), 9, time.Second, false), reserve(token(100, time.Minute, 20, false), 2, time.Second, true))
	edits(reserve(token(3e9, time.Second, 100, false), 9, time.Second, false)) // 1/3 ns
	return all
}()

// calendars returns calendars with days and with months, in time zones with daylight saving time.
func calendars() (all []*limiter.Calendar) {
	for i, unit := range []limiter.CalendarUnit{limiter.Months, limiter.Days} {
		location, err := time.LoadLocation([]string{"Europe/Berlin", "America/Havana"}[i])
		if err != nil {
			panic(err)
		}
		all = append(all, limiter.NewCalendar(location, 31).WithUnit(unit))
	}
	return all
}

// nameOf returns the name of the counter of a charge.
func nameOf(prefix string, c *limiter.Charge) []byte {
	return fmt.Appendf(nil, "%s{%d}_", prefix, c.ID.Lo)
}

// The comparison has counters of every algorithm.
func TestEachAlgorithmIsCompared(t *testing.T) {
	compared := map[limiter.Algorithm]bool{}
	for _, same := range counters {
		compared[same[0].Algorithm] = true
	}
	for algorithm := range limiter.Algorithm(limiter.Algorithms) {
		if algorithm != 0 && !compared[algorithm] {
			t.Errorf("the differential test has no counter of algorithm %d", algorithm)
		}
	}
}
