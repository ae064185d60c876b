// Package soak stress-tests limiter tables from many goroutines and checks that they admit neither
// too much nor too little. Time is simulated, so that hours pass in a moment, or real.
package soak

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var length = flag.Duration("for", 5*time.Second, "duration of the test; each trial runs at least once, and is shorter below a minute")

// TestSoak runs all trials repeatedly with different random numbers, until the time is up. A seed
// does not reproduce the order of goroutines.
func TestSoak(t *testing.T) {
	effort.Require(t, effort.More)
	seed := rand.Uint64()
	if s := os.Getenv("SLUICE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("parse SLUICE_SEED: %v", err)
		}
	}
	t.Logf("SLUICE_SEED=%d, for %v", seed, *length)
	r := rand.New(rand.NewPCG(seed, 1))
	all := trials()
	over := func(start time.Time) bool { return time.Since(start) >= *length }
	for start, pass := time.Now(), 0; pass == 0 || !over(start); pass++ {
		for i := range all {
			if pass > 0 && over(start) {
				break
			}
			trial := &all[i]
			b := &round{policy: trial.policy, rand: rand.New(rand.NewPCG(r.Uint64(), 1)), small: *length < time.Minute}
			trial.run(b)
			trial.add(b)
			for _, f := range b.faults[:min(len(b.faults), mostFaults)] {
				t.Errorf("%s: %s", trial.name, f)
			}
		}
	}
	for _, trial := range all {
		t.Logf("%s: %d operations in %d rounds, %d admitted, at most %d of %d", trial.name, trial.ops, trial.rounds, trial.admitted, trial.peak, trial.bound)
	}
}

// mostFaults is the maximum number of printed faults per round.
const mostFaults = 5

// TestFault checks that a peak beyond its bound is a fault, and that the worst round is printed.
func TestFault(t *testing.T) {
	var some trial
	for _, peak := range []int64{6, 4} {
		b := &round{}
		b.recordPeak("peak", 3, 5)
		b.recordPeak("peak", peak, 5)
		some.add(b)
		if got := strings.Join(b.faults, ", "); (peak > 5) != (got == "peak: admitted 6, want at most 5") {
			t.Errorf("with a peak of %d and a bound of 5 the faults are %q", peak, got)
		}
	}
	if some.rounds != 2 || some.peak != 6 || some.bound != 5 {
		t.Errorf("total %+v, want the worst of two rounds, a peak of 6 with a bound of 5", some)
	}
}

func grants(pairs ...int64) []grant {
	var all []grant
	for i := 0; i < len(pairs); i += 2 {
		at := epoch + limiter.Time(pairs[i])
		all = append(all, grant{from: at, to: at, end: at - at%10 + 10, hits: pairs[i+1]})
	}
	return all
}

// TestPeak checks the bounds of a window of 10 ns and 10 hits.
func TestPeak(t *testing.T) {
	p := func(a limiter.Algorithm) *limiter.Policy {
		return &limiter.Policy{Algorithm: a, Limit: 10, Window: 10 * time.Nanosecond, Burst: 5, Slack: 4}
	}
	for _, tt := range []struct {
		name   string
		p      *limiter.Policy
		grants []grant
		want   int64
	}{
		{"two windows", p(limiter.FixedWindow), grants(8, 6, 9, 1, 10, 5), 7},
		{"interval", p(limiter.SlidingLog), grants(0, 3, 5, 4, 9, 5, 10, 2, 19, 1), 12},
		{"interval in any order", p(limiter.SlidingWindow), grants(10, 2, 0, 3, 9, 5, 5, 4), 12},
		{"interval in doubt", p(limiter.SlidingLog), append(grants(0, 3, 9, 2), grant{from: epoch + 5, to: epoch + 15, hits: 4}), 5},
		{"burst", p(limiter.TokenBucket), grants(0, 5, 3, 3, 4, 1), 5},
		{"burst beyond", p(limiter.TokenBucket), grants(0, 5, 3, 4, 4, 1), 6},
		{"burst later", p(limiter.LeakyBucket), grants(0, 1, 100, 7), 7},
	} {
		if got, bound := peak(tt.p, tt.grants); got != tt.want || bound < 5 || bound > 10 {
			t.Errorf("%s: peak = %d of %d, want %d", tt.name, got, bound, tt.want)
		}
	}
}
