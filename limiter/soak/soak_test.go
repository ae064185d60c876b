package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/limiter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One round of all trials, shorter ones.
func TestSoak(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-small", "-for", "5s"}, &out); err != nil {
		t.Errorf("run: %v", err)
	}
	t.Log(out.String())
}

func TestFlags(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-nonsense"}, &out); err == nil {
		t.Errorf("run(-nonsense) gives no error")
	}
	t.Setenv("SLUICE_SEED", "x")
	if err := run(t.Context(), nil, &out); err == nil {
		t.Errorf("run with SLUICE_SEED=x gives no error")
	}
}

// What is beyond a bound is a fault, and makes the program end with an error.
func TestFault(t *testing.T) {
	b := &bout{}
	b.within("it", 5, 5)
	b.within("it", 6, 5)
	tot := &total{trial: trial{name: "some"}}
	tot.add(b)
	var out strings.Builder
	if err := report(&out, []*total{tot}); err == nil {
		t.Errorf("report gives no error")
	}
	if want := "FAULT some: it: admitted 6, at most 5 may be"; !strings.Contains(out.String(), want) || tot.peak != 6 {
		t.Errorf("report printed\n%s, want %q", out.String(), want)
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

// The bounds of a window of 10 ns and 10 hits.
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
		{"window, two of them", p(limiter.FixedWindow), grants(8, 6, 9, 1, 10, 5), 7},
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
