package store

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// TestSlowness has servers that are always slow, slow once, or report wrong times.
func TestSlowness(t *testing.T) {
	const estimate, long = time.Millisecond, time.Hour
	type run struct{ duration, trip time.Duration }
	repeat := func(n int, r run) []run { return slices.Repeat([]run{r}, n) }
	for name, tt := range map[string]struct {
		runs []run
		want time.Duration // bound for a run of one millisecond
	}{
		"no run":                                {nil, time.Millisecond},
		"faster than estimated":                 {repeat(10, run{time.Millisecond / 2, long}), time.Millisecond},
		"three slow runs":                       {repeat(3, run{100 * time.Millisecond, long}), time.Millisecond},
		"one slow run among others":             {slices.Insert(repeat(9, run{time.Millisecond, long}), 6, run{time.Second, long}), time.Millisecond},
		"a server four times slower":            {repeat(4, run{4 * time.Millisecond, long}), time.Millisecond / 4},
		"a server that was slow":                {append(repeat(100, run{4 * time.Millisecond, long}), repeat(4, run{time.Millisecond, long})...), time.Millisecond},
		"a server that reports a huge duration": {repeat(4, run{math.MaxInt64, 2 * time.Millisecond}), time.Millisecond / 2},
		"a server that is never ready":          {repeat(4, run{math.MaxInt64, math.MaxInt64}), time.Millisecond / maxSlowdown},
		"no time":                               {repeat(4, run{0, long}), time.Millisecond},
		"a time below 0":                        {repeat(4, run{math.MinInt64, long}), time.Millisecond},
		"a round trip below 0":                  {repeat(4, run{time.Second, -1}), time.Millisecond},
	} {
		var s slowness
		for _, r := range tt.runs {
			s.add(r.duration, r.trip, 0)
			s.add(r.duration, r.trip, estimate)
			s.add(r.duration, r.trip, -estimate)
		}
		if got := s.bound(time.Millisecond); got != tt.want {
			t.Errorf("%s: a run of a millisecond is estimated at %v, want %v", name, got, tt.want)
		}
	}
}

// If a server is four times slower than estimated, or slower than the cap, the bounds of runs and
// of parts of large requests shrink by that factor. Each run and part still has at least one
// charge.
func TestSlowServersGetShorterRuns(t *testing.T) {
	for _, times := range []int{4, 1000} {
		l := newIdleShard(t)
		for range len(l.slowness.recent) {
			l.slowness.add(time.Duration(times)*time.Second, time.Hour, time.Second)
		}
		slower := time.Duration(min(times, maxSlowdown))
		sent := 0
		for range 1000 {
			enqueueRequest(l, 5*time.Microsecond, false)
		}
		for sent < 1000 {
			batch, _ := l.nextBatch(0, nil)
			l.batchDone()
			if most := int(script.MaxRun / slower / (5 * time.Microsecond)); len(batch) == 0 || len(batch) > most {
				t.Fatalf("%d times slower: a run of %d requests, want 1 to %d", times, len(batch), most)
			}
			sent += len(batch)
		}
		charges := manyCharges(1, 300, ringOf60, 3)
		var names [][]byte
		for i := range charges {
			names = append(names, nameOf("s1", &charges[i]))
		}
		r := l.backend.store.split(0, &limiter.Batch{Charges: charges}, names)
		for _, p := range r.parts {
			if n := len(p.batch.Charges); n == 0 || n > 1 && p.cost > script.MaxPart/slower {
				t.Errorf("%d times slower: a part of %d charges is estimated at %v", times, n, p.cost)
			}
		}
	}
}
