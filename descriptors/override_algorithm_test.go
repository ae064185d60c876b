package descriptors

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestOverrideKeepsAlgorithm checks which fields of a rule apply to an override, which has its own
// number and unit.
func TestOverrideKeepsAlgorithm(t *testing.T) {
	s := load(t, Options{}, `
domain: d
descriptors:
  - {key: ring, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: sliding_window, sub_windows: 6, count_refused: true}}
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: sliding_log}}
  - {key: token, rate_limit: {unit: minute, unit_multiplier: 2, requests_per_unit: 60, algorithm: token_bucket, burst: 20, count_refused: true}}
  - {key: plain_token, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: token_bucket}}
  - {key: big_token, rate_limit: {unit: second, requests_per_unit: 1, algorithm: token_bucket, burst: 1000000}}
  - {key: no_token, rate_limit: {unit: second, requests_per_unit: 0, algorithm: token_bucket, burst: 7}}
  - {key: leaky, rate_limit: {unit: second, requests_per_unit: 100, algorithm: leaky_bucket, slack: 7, max_wait: 50ms, max_waiting: 5}}
  - {key: long_leaky, rate_limit: {unit: second, requests_per_unit: 100, algorithm: leaky_bucket, slack: 1000000000}}
  - key: list
    rate_limits:
      - {unit: minute, requests_per_unit: 60, algorithm: token_bucket, burst: 6}
      - {unit: day, requests_per_unit: 1000}
`)
	const (
		minute, day, month, year = 2, 4, 5, 6
		year10                   = limiter.MaxWindow
	)
	token := func(limit uint32, window time.Duration, burst uint32) *limiter.Policy {
		return &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: limit, Window: window, Burst: burst}
	}
	leaky := func(limit uint32, window time.Duration, slack uint32) *limiter.Policy {
		return &limiter.Policy{
			Algorithm: limiter.LeakyBucket, Limit: limit, Window: window, Slack: slack, MaxWait: 50 * time.Millisecond, MaxWaiting: 5,
		}
	}
	counting := func(p *limiter.Policy) *limiter.Policy {
		p.CountRefused = true
		return p
	}
	for _, tc := range []struct {
		name string
		desc Descriptor
		want *limiter.Policy // nil if the override is ignored
	}{
		{
			"a sliding window keeps its sub-windows and counts denied hits", desc("ring", "").limit(5, minute, 0),
			&limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 5, Window: time.Minute, SubWindows: 6, CountRefused: true},
		},
		{
			"a log up to its maximum", desc("log", "").limit(4096, minute, 0),
			&limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 4096, Window: time.Minute},
		},
		{"a log beyond its maximum", desc("log", "").limit(4097, minute, 0), nil},
		{"half the limit, half the burst", desc("token", "").limit(30, minute, 0), counting(token(30, time.Minute, 10))},
		{"rounded up", desc("token", "").limit(31, minute, 0), counting(token(31, time.Minute, 11))},
		{"a burst of at least one", desc("token", "").limit(1, minute, 0), counting(token(1, time.Minute, 1))},
		{"a limit of 0", desc("token", "").limit(0, minute, 0), counting(token(0, time.Minute, 1))},
		{"the default burst is the override's limit", desc("plain_token", "").limit(7, minute, 3), token(7, 3*time.Minute, 7)},
		{"the maximum numbers", desc("big_token", "").limit(math.MaxUint32, 1, 0), token(math.MaxUint32, time.Second, math.MaxUint32)},
		{"a burst beyond the clock is capped", desc("big_token", "").limit(1, year, 10), token(1, year10, 3)},
		{"a configured limit of 0 has no ratio", desc("no_token", "").limit(5, minute, 0), token(5, time.Minute, 5)},
		{"a leaky bucket keeps all its fields", desc("leaky", "").limit(2, day, 0), leaky(2, 24*time.Hour, 7)},
		{"slack beyond the clock is capped", desc("leaky", "").limit(1, year, 10), leaky(1, year10, 2)},
		{
			"a slack of a year on a slower override is capped", desc("long_leaky", "").limit(1, month, 0),
			&limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 1, Window: 30 * 24 * time.Hour, Slack: 443, MaxWaiting: 100},
		},
		{
			"slack without a limit", desc("leaky", "").limit(0, minute, 0), leaky(0, time.Minute, 7),
		},
		{"the first item of a list applies", desc("list", "").limit(600, minute, 0), token(600, time.Minute, 60)},
	} {
		p := plan(s, Global{}, tc.desc)
		m := p.Matches[0]
		if tc.want == nil {
			if m.Override || !m.IgnoredOverride || m.Rule == nil || p.Batch.Charges[0].Policy.Limit != 10 {
				t.Errorf("%s: match = %+v, want the override ignored", tc.name, m)
			}
			continue
		}
		if !m.Override || m.IgnoredOverride || m.Count != 1 {
			t.Errorf("%s: match = %+v, want one charge of an override", tc.name, m)
			continue
		}
		if got := *p.Batch.Charges[0].Policy; withoutDerived(got) != *tc.want {
			t.Errorf("%s: policy = %+v, want %+v", tc.name, got, *tc.want)
		}
	}
}
