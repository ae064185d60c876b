package store

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// BenchmarkColdCounters alternates between a store without blocks and one with blocks but without hot
// counters. It reports medians of the CPU time of a request without blocks, and of the time that blocks
// add. The stores are unavailable. An available one adds the cost of a command to both.
func BenchmarkColdCounters(b *testing.B) {
	for _, limits := range []int{1, 8} {
		b.Run(fmt.Sprintf("limits=%d", limits), func(b *testing.B) { benchmarkCold(b, limits) })
	}
}

func benchmarkCold(b *testing.B, limits int) {
	b.Helper()
	const (
		requests = 4096    // of each store in turn
		counters = 1 << 16 // as many as cells for their demand
	)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: time.Second}
	p.Prepare()
	off, auto := newStore(b, Options{Fallback: Deny}), newStore(b, Options{Fallback: Deny, Blocks: BlocksAuto})
	names, left, c, next := make([][]byte, limits), &limiter.State{}, caller{}, uint64(0)
	run := func(s *Store) float64 {
		before := processCPU(b)
		for range requests {
			now := limiter.Time(time.Now().UnixNano())
			c.b.Reset()
			for range limits {
				next++
				c.b.Charges = append(c.b.Charges, chargeOn(next*0x9e3779b97f4a7c15%counters, p))
			}
			if done, err := s.Decide(now, &c.b, names, &c); !done || err != nil {
				b.Fatal(done, err)
			}
			for i := range c.b.Charges {
				if s.blocks != nil { // as with a reply
					s.blocks.learn(now, &c.b.Charges[i], left, &c.b.Decisions[i])
				}
			}
		}
		return float64(processCPU(b)-before) / requests
	}
	var without, added []float64
	for b.Loop() {
		one := run(off)
		without, added = append(without, one), append(added, run(auto)-one)
		if clear(auto.blocks.cold[:]); len(auto.blocks.all) > 0 {
			b.Fatal("a counter is hot")
		}
	}
	for unit, all := range map[string][]float64{"off-ns/request": without, "added-ns/request": added} {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], unit)
	}
	b.ReportMetric(0, "ns/op")
}

// processCPU returns the CPU time of this process.
func processCPU(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	must.OK(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
