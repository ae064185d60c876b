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

// BenchmarkPenalty admits hits under a limit with penalties, while no client and while another
// client is under a penalty, and denies hits under a penalty.
func BenchmarkPenalty(b *testing.B) {
	for _, op := range []string{"allow without a penalty", "allow", "allow next to a penalty", "deny"} {
		b.Run("op="+op, func(b *testing.B) {
			p := &Policy{Algorithm: TokenBucket, Limit: 1000, Burst: 1000, Window: time.Second}
			if op != "allow without a penalty" {
				p.Penalty = NewPenalty(MaxPenalty)
			}
			p.Prepare()
			t, batch, now, pace := newTable(b, 0), &Batch{Charges: []Charge{oneHit(counterID(1), p)}}, benchNow, Time(time.Millisecond)
			if op == "allow next to a penalty" || op == "deny" {
				offender := &Batch{Charges: []Charge{oneHit(counterID(map[string]int{"allow next to a penalty": 2, "deny": 1}[op]), p)}}
				offender.Charges[0].Hits = 1001
				t.Decide(now, offender)
			}
			b.ReportAllocs()
			for b.Loop() {
				now += pace
				t.Decide(now, batch)
			}
			if batch.Denied != (op == "deny") {
				b.Error(batch.Decisions)
			}
		})
	}
}

// BenchmarkConcurrency acquires and releases one of n permits, half of which are held, or is denied
// a permit. It runs on one goroutine, or on all processors with one counter.
func BenchmarkConcurrency(b *testing.B) {
	for _, n := range []uint32{1, 16, 100, 1000, MaxLog} {
		for _, op := range []string{"pair", "deny"} {
			for _, parallel := range []bool{false, true} {
				b.Run(fmt.Sprintf("op=%s/n=%d/parallel=%v", op, n, parallel), func(b *testing.B) {
					t, p, held := newTable(b, 0), atOnce(n), n/2
					if op == "deny" {
						held = n
					}
					for range held {
						acquirePermit(t, benchNow, counterID(1), p)
					}
					decide := func(next func() bool) {
						acquire := &Batch{Charges: []Charge{oneHit(counterID(1), p)}}
						release := &Batch{Charges: []Charge{{ID: counterID(1), Policy: p, Refund: true}}}
						for next() {
							t.Decide(benchNow, acquire)
							if release.Charges[0].Hits = acquire.Lease(0); op == "pair" && release.Charges[0].Hits > 0 {
								t.Decide(benchNow, release)
							}
						}
					}
					b.ReportAllocs()
					if parallel {
						b.RunParallel(func(pb *testing.PB) { decide(pb.Next) })
					} else {
						decide(b.Loop)
					}
				})
			}
		}
	}
}

// BenchmarkReserve reserves hits and settles them, while n other reservations are held.
func BenchmarkReserve(b *testing.B) {
	for _, held := range []int{0, 10, 100, 1000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			p := &Policy{Algorithm: TokenBucket, Limit: 1e9, Burst: 1e9, Window: time.Minute, Reserve: NewReserve(MaxReservations, time.Minute, false)}
			p.Prepare()
			t := newTable(b, 0)
			reserves := &Batch{Charges: []Charge{{ID: counterID(1), Policy: p, Hits: 1, Reserve: true}}}
			settles := &Batch{Charges: []Charge{{ID: counterID(1), Policy: p, Refund: true}, {ID: counterID(1), Policy: p, Hits: 1, Group: 1}}}
			for range held {
				t.Decide(benchNow, reserves)
			}
			b.ReportAllocs()
			for b.Loop() {
				t.Decide(benchNow, reserves)
				settles.Charges[0].Hits = reserves.Lease(0)
				t.Decide(benchNow, settles)
			}
		})
	}
}

// BenchmarkGroups decides two charges on two of a thousand counters.
func BenchmarkGroups(b *testing.B) {
	for _, op := range []struct {
		name   string
		second *Policy
		group  int32
	}{
		{"single_groups", perDay(1 << 31), 1},
		{"all_or_nothing", perDay(1 << 31), 0},
		{"all_or_nothing_denied", perDay(0), 0},
	} {
		b.Run("op="+op.name, func(b *testing.B) {
			t, ids, next := newTable(b, 0), benchIDs(1000), spread(500)
			batch := &Batch{Charges: []Charge{
				{Policy: perDay(1 << 31), Hits: 1},
				{Policy: op.second, Hits: 1, Group: op.group},
			}}
			b.ReportAllocs()
			for b.Loop() {
				i := next()
				batch.Charges[0].ID, batch.Charges[1].ID = ids[i], ids[i+500]
				t.Decide(benchNow, batch)
			}
		})
	}
}

// BenchmarkNewCounter hits counters without a slot: the table fills, then reclaims expired counters
// or evicts live ones.
func BenchmarkNewCounter(b *testing.B) {
	for _, bytes := range []int64{64 << 10, defaultBytes} {
		for _, op := range []struct {
			name string
			pace Time
		}{{"reclaim", Time(time.Hour)}, {"give_up", 0}} {
			b.Run(fmt.Sprintf("op=%s/bytes=%d", op.name, bytes), func(b *testing.B) {
				t := newTable(b, bytes)
				batch := &Batch{Charges: []Charge{{Policy: perDay(5), Hits: 1}}}
				now, i := benchNow, uint64(0)
				hit := func() {
					i++
					batch.Charges[0].ID = identity.ID{Hi: i * 0xd6e8feb86659fd93, Lo: i * 0x9e3779b97f4a7c15}
					now += op.pace
					t.Decide(now, batch)
				}
				for range 2 * t.Stats().Bytes / 16 {
					hit()
				}
				b.ReportAllocs()
				for b.Loop() {
					hit()
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
