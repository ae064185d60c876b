package limiter

import (
	"testing"
	"time"
)

// hour0 is a full hour.
const hour0 = 472_222 * 3600 * sec

// decideOne decides one charge and returns the decision.
func decideOne(t *Table, now Time, p *Policy, hits uint64) Decision {
	return decide(t, now, Charge{ID: counterID(1), Policy: p, Hits: hits}).Decisions[0]
}

// admit charges n single hits, and returns how many were admitted.
func admit(t *Table, now Time, p *Policy, n int) int {
	admitted := 0
	for range n {
		if !decideOne(t, now, p, 1).Over {
			admitted++
		}
	}
	return admitted
}

// TestBucketsInAnyWindow has a client that takes all it can after an idle time: an interval of a
// window contains as many hits as docs/algorithms.md states, and no more. The interval excludes its
// end.
func TestBucketsInAnyWindow(t *testing.T) {
	const n = 60
	for name, tt := range map[string]struct {
		policy Policy
		want   int
	}{
		"token bucket":          {Policy{Algorithm: TokenBucket, Limit: n, Window: time.Minute, Burst: 20}, 20 + n - 1},
		"token bucket, default": {Policy{Algorithm: TokenBucket, Limit: n, Window: time.Minute, Burst: n}, n + n - 1},
		"token bucket of one":   {Policy{Algorithm: TokenBucket, Limit: n, Window: time.Minute, Burst: 1}, n},
		"leaky bucket":          {Policy{Algorithm: LeakyBucket, Limit: n, Window: time.Minute, Slack: 10}, 10 + n},
		"leaky bucket of one":   {Policy{Algorithm: LeakyBucket, Limit: n, Window: time.Minute}, n},
	} {
		tab := newTable(t, MinBytes)
		var admitted []Time
		for now := hour0; now < hour0+3*60*sec; now += sec / 8 {
			for range admit(tab, now, &tt.policy, 2*n) {
				admitted = append(admitted, now)
			}
		}
		most := 0
		for i, first := range admitted {
			within := 0
			for _, at := range admitted[i:] {
				if at < first+60*sec {
					within++
				}
			}
			most = max(most, within)
		}
		if most != tt.want {
			t.Errorf("%s admits %d in a window, want %d", name, most, tt.want)
		}
	}
}

// TestSnapshotSize compares the size of snapshots with docs/state-file.md.
func TestSnapshotSize(t *testing.T) {
	for _, tt := range []struct {
		policy *Policy
		each   int64 // bytes of a counter, 0 if the page does not state it
	}{
		{perMinute(5), 17}, {ringOfTen(5), 73}, {logOf(5), 0}, {logOf(100), 0}, {atOnce(100), 0},
	} {
		size := func(counters int) (snapshotBytes, used int64) {
			tab := newTable(t, 1<<20)
			for n := range counters {
				decide(tab, min1, oneHit(counterID(n), tt.policy))
			}
			return int64(len(snapshot(t, tab, min1))), tab.Stats().Used
		}
		empty, _ := size(0)
		if some, _ := size(1000); tt.each > 0 && some-empty > tt.each*1000 {
			t.Errorf("algorithm %d: 1000 counters take %d bytes, want %d each", tt.policy.Algorithm, some-empty, tt.each)
		}
		const memory = 1 << 20
		if full, used := size(2 * memory / CounterBytes(*tt.policy)); used < memory*8/10 || full > memory*11/10 {
			t.Errorf("algorithm %d: a full table of %d bytes takes %d, of which %d are used", tt.policy.Algorithm, memory, full, used)
		}
	}
}

// TestBucketRate takes hits as early as a bucket permits. The rate is never exceeded, and each hit
// is at most a nanosecond late.
func TestBucketRate(t *testing.T) {
	for _, n := range []uint32{1, 3, 7, 999, 1_000_003, 999_999_937} {
		for name, p := range map[string]*Policy{
			"token bucket": {Algorithm: TokenBucket, Limit: n, Window: time.Second, Burst: 1},
			"leaky bucket": {Algorithm: LeakyBucket, Limit: n, Window: time.Second},
		} {
			tab, now, last, hits := newTable(t, MinBytes), hour0, hour0, Time(0)
			for range 2000 {
				d := decideOne(tab, now, p, 1)
				if !d.Over {
					hits, last = hits+1, now
					continue
				}
				now += Time(d.RetryAfter)
			}
			intervals := hits - 1 // the first hit needs none
			exact := intervals * sec / Time(n)
			if took := last - hour0; took < exact || took > exact+intervals {
				t.Errorf("%s, %d a second: %d hits took %v, want %v and at most a nanosecond each", name, n, hits, time.Duration(took), time.Duration(exact))
			}
		}
	}
}
