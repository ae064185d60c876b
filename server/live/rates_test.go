package live

import (
	"slices"
	"testing"
	"time"
)

func (r *Rates[K]) rate(k K, c Counts, now time.Time) Rate {
	rate, _ := r.Rate(k, c, now)
	return rate
}

// TestRates checks the rates of a count that grows and then stops, each second, and the line of
// five minutes.
func TestRates(t *testing.T) {
	var r Rates[string]
	now, hits := begin, uint64(0)
	step := func(n uint64) {
		now = now.Add(time.Second)
		hits += n
		r.Advance(now, func(record func(string, Counts)) { record("a", Counts{Hits: hits, Denied: hits / 2, Near: 0}) })
	}
	rate := func() Rate { return r.rate("a", Counts{Hits: hits, Denied: hits / 2, Near: 0}, now) }
	step(0)
	if got := rate(); got != (Rate{}) {
		t.Errorf("at the start the rate is %+v, want 0", got)
	}
	for i := range 600 {
		step(20)
		if got, want := rate(), (Rate{Hits: 20, Denied: 10}); i > 10 && got != want {
			t.Fatalf("after %d s the rate is %+v, want %+v", i, got, want)
		}
	}
	line := r.Line("a")
	if want := slices.Repeat([]uint32{200}, linePoints); !slices.Equal(line.Hits, want) || line.Seconds != 10 {
		t.Errorf("the line is %+v, want 200 in each point of 10 s", line)
	}
	if want := slices.Repeat([]uint32{100}, linePoints); !slices.Equal(line.Denied, want) {
		t.Errorf("the line has %v denied, want 100 in each point", line.Denied)
	}
	for i := range 12 {
		step(0)
		if got := rate(); i > 10 && got != (Rate{}) {
			t.Errorf("%d s after the end the rate is %+v, want 0", i, got)
		}
	}
	for range 320 {
		step(0)
	}
	if _, known := r.Rate("a", Counts{}, now); known || r.Line("a") != nil {
		t.Errorf("after five minutes without a hit there is a line: %+v", r.Line("a"))
	}
}

// TestRatesOfNewCounts checks that a first burst is reported immediately.
func TestRatesOfNewCounts(t *testing.T) {
	var r Rates[string]
	r.Advance(begin, func(func(string, Counts)) {})
	now := begin.Add(3 * time.Second)
	if got, want := r.rate("a", Counts{Hits: 100}, now), (Rate{Hits: 25}); got != want {
		t.Errorf("3 s after the first Advance the rate is %+v, want %+v", got, want)
	}
	r.Advance(begin.Add(interval), func(record func(string, Counts)) { record("a", Counts{Hits: 100}) })
	if got, want := r.rate("a", Counts{Hits: 100}, begin.Add(interval)), (Rate{Hits: 20}); got != want {
		t.Errorf("5 s after the first Advance the rate is %+v, want %+v", got, want)
	}
}

// TestRatesOfRestartedCount checks that a count that restarts at 0 does not wrap around.
func TestRatesOfRestartedCount(t *testing.T) {
	var r Rates[string]
	for i := range 4 {
		r.Advance(begin.Add(time.Duration(i)*interval), func(record func(string, Counts)) { record("a", Counts{Hits: 1000}) })
	}
	if got := r.rate("a", Counts{Hits: 3}, begin.Add(3*interval)); got != (Rate{}) {
		t.Errorf("the rate is %+v, want 0", got)
	}
}

// TestRatesOfAClockThatIsSetBack checks that rates are correct from the next interval on.
func TestRatesOfAClockThatIsSetBack(t *testing.T) {
	for _, back := range []time.Duration{time.Millisecond, 4999 * time.Millisecond, 5 * time.Second, time.Hour} {
		var r Rates[string]
		hits := uint64(0)
		step := func(now time.Time) Rate {
			hits += 20
			r.Advance(now, func(record func(string, Counts)) { record("a", Counts{Hits: hits}) })
			return r.rate("a", Counts{Hits: hits}, now)
		}
		now := begin
		for range 60 {
			now = now.Add(time.Second)
			step(now)
		}
		now = now.Add(-back)
		for i := range 60 {
			got := step(now)
			now = now.Add(time.Second)
			if got.Hits < 0 || got.Hits > 45 || i > 15 && got != (Rate{Hits: 20}) {
				t.Errorf("%d s after the clock was set back by %v the rate is %+v, want 20 a second", i, back, got)
			}
		}
	}
}

// TestRatesOfSharedCounters reads one count twice in each interval, as limits that share their
// counters do.
func TestRatesOfSharedCounters(t *testing.T) {
	var r Rates[string]
	now := begin
	for i := range uint64(80) {
		now = now.Add(interval)
		c := Counts{Hits: 100 * i}
		r.Advance(now, func(record func(string, Counts)) { record("a", c); record("a", c) })
		if got := r.rate("a", c, now); i > 2 && got.Hits != 20 {
			t.Fatalf("the rate is %v, want 20", got.Hits)
		}
	}
	if line := r.Line("a"); !slices.Equal(line.Hits, slices.Repeat([]uint32{200}, linePoints)) {
		t.Errorf("the line is %v, want 200 in each point", line.Hits)
	}
}

// TestRatesOfAClockThatIsSetAhead checks that an interval that a clock change ends counts with its
// real length.
func TestRatesOfAClockThatIsSetAhead(t *testing.T) {
	for _, by := range []time.Duration{15 * time.Second, time.Hour, -time.Hour} {
		var r Rates[string]
		now, hits := begin, uint64(0)
		for i := range 120 {
			if i == 62 {
				now = now.Add(by)
			}
			now = now.Add(time.Second)
			hits += 20
			r.Advance(now, func(record func(string, Counts)) { record("a", Counts{Hits: hits}) })
			got := r.rate("a", Counts{Hits: hits}, now).Hits
			if i > 10 && (got < 15 || got > 40) || i > 75 && got != 20 {
				t.Errorf("%d s after the clock was set by %v the rate is %v, want 20", i-62, by, got)
			}
		}
	}
}
