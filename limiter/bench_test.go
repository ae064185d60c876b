package limiter

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

const benchNow = Time(1_700_000_000_123_456_789)

func benchIDs(n int) []identity.ID {
	ids := make([]identity.ID, n)
	for i := range ids {
		ids[i] = counterID(i)
	}
	return ids
}

func perDay(limit uint32) *Policy {
	return &Policy{Algorithm: FixedWindow, Limit: limit, Window: 24 * time.Hour}
}

// spread returns a generator of pseudo-random numbers below n, always with the same sequence.
func spread(n int) func() int {
	state := uint32(0)
	return func() int {
		state = state*1664525 + 1013904223
		return int(uint64(state) * uint64(n) >> 32)
	}
}

// BenchmarkDecide decides one charge on one of the given number of live counters.
func BenchmarkDecide(b *testing.B) {
	ops := []struct {
		name string
		c    Charge
	}{
		{"allow", Charge{Policy: perDay(1<<32 - 1), Hits: 1}},
		{"deny", Charge{Policy: perDay(1), Hits: 1}},
		{"peek", Charge{Policy: perDay(1)}},
	}
	for _, op := range ops {
		for _, keys := range []int{1, 1000, 1_000_000} {
			b.Run(fmt.Sprintf("op=%s/keys=%d", op.name, keys), func(b *testing.B) {
				t, ids, next := newTable(b, 0), benchIDs(keys), spread(keys)
				batch := &Batch{Charges: []Charge{{Policy: op.c.Policy, Hits: 1}}}
				for _, id := range ids {
					batch.Charges[0].ID = id
					t.Decide(benchNow, batch)
				}
				batch.Charges[0] = op.c
				b.ReportAllocs()
				for b.Loop() {
					batch.Charges[0].ID = ids[next()]
					t.Decide(benchNow, batch)
				}
			})
		}
	}
}

// A benchAlgorithm is an algorithm with a policy that admits nearly all hits and one that denies
// all but one.
type benchAlgorithm struct {
	name        string
	admit, deny Policy
}

func benchAlgorithms() []benchAlgorithm {
	const many = 1<<32 - 1
	return []benchAlgorithm{
		{"fixed_window", *perDay(many), *perDay(1)},
		{
			"sliding_window",
			Policy{Algorithm: SlidingWindow, Limit: many, Window: time.Minute, SubWindows: 10},
			Policy{Algorithm: SlidingWindow, Limit: 1, Window: 24 * time.Hour, SubWindows: 10},
		},
		{
			"fixed_window_by_month",
			Policy{Algorithm: FixedWindow, Limit: many, Window: 30 * 24 * time.Hour, Calendar: NewCalendar(time.UTC, 1).WithUnit(Months)},
			Policy{Algorithm: FixedWindow, Limit: 1, Window: 30 * 24 * time.Hour, Calendar: NewCalendar(time.UTC, 1).WithUnit(Months)},
		},
		{
			"sliding_window_by_month",
			Policy{Algorithm: SlidingWindow, Limit: many, Window: 30 * 24 * time.Hour, SubWindows: 10, Calendar: NewCalendar(time.UTC, 1).WithUnit(Months)},
			Policy{Algorithm: SlidingWindow, Limit: 1, Window: 30 * 24 * time.Hour, SubWindows: 10, Calendar: NewCalendar(time.UTC, 1).WithUnit(Months)},
		},
		{
			"sliding_log",
			Policy{Algorithm: SlidingLog, Limit: MaxLog, Window: time.Second},
			Policy{Algorithm: SlidingLog, Limit: 1, Window: 24 * time.Hour},
		},
		{
			"token_bucket",
			Policy{Algorithm: TokenBucket, Limit: 1e6, Window: time.Second, Burst: 1000},
			Policy{Algorithm: TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: 1},
		},
		{
			"leaky_bucket",
			Policy{Algorithm: LeakyBucket, Limit: 1e6, Window: time.Second, Slack: 10},
			Policy{Algorithm: LeakyBucket, Limit: 1, Window: 24 * time.Hour},
		},
	}
}

// BenchmarkAlgorithms decides one charge on one counter with every algorithm at a given time.
func BenchmarkAlgorithms(b *testing.B) {
	for _, a := range benchAlgorithms() {
		for _, op := range []struct {
			name string
			p    *Policy
			pace Time
		}{{"allow", &a.admit, Time(time.Millisecond)}, {"deny", &a.deny, 0}} {
			b.Run(fmt.Sprintf("alg=%s/op=%s", a.name, op.name), func(b *testing.B) {
				op.p.Prepare()
				t, batch, now := newTable(b, 0), &Batch{Charges: []Charge{oneHit(counterID(1), op.p)}}, benchNow
				t.Decide(now, batch)
				b.ReportAllocs()
				for b.Loop() {
					now += op.pace
					t.Decide(now, batch)
				}
			})
		}
	}
}

// BenchmarkParallel hits one counter, or a thousand, on all processors.
func BenchmarkParallel(b *testing.B) {
	for _, op := range []struct {
		name string
		p    *Policy
	}{{"allow", perDay(1<<32 - 1)}, {"deny", perDay(1)}} {
		for _, keys := range []int{1, 1000} {
			b.Run(fmt.Sprintf("op=%s/keys=%d", op.name, keys), func(b *testing.B) {
				t, ids := newTable(b, 0), benchIDs(keys)
				var worker atomic.Int64
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					next := spread(keys)
					for range worker.Add(1) * 100 { // each starts at another counter
						next()
					}
					batch := &Batch{Charges: []Charge{{Policy: op.p, Hits: 1}}}
					for pb.Next() {
						batch.Charges[0].ID = ids[next()]
						t.Decide(benchNow, batch)
					}
				})
			})
		}
	}
}
