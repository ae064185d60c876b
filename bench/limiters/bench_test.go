// Package limiters contains benchmarks that compare sluice's limiters with those of other Go
// libraries. The suite runs them in rounds and prints a table.
package limiters

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-ratelimit/sluice/e2e/process"
)

var counters = flag.Int("counters", 1_000_000, "counters of the large cases")

// BenchmarkLimiters makes the same decision with each limiter. It builds the identity from a key,
// reads the clock, finds the counter and decides.
func BenchmarkLimiters(b *testing.B) {
	// Disable the collector, so that no limiter pays for another one's garbage. The collector's
	// cost of counters is measured separately.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, c := range contenders() {
		b.Run("limiter="+c.name, func(b *testing.B) {
			b.Run("case=hot", func(b *testing.B) { decideInParallel(b, c.openFilled(b, setting{1, admitting}), 1, false) })
			if !c.neverDenies {
				b.Run("case=denied", func(b *testing.B) { decideInParallel(b, c.openFilled(b, setting{1, denying}), 1, false) })
			}
			b.Run("case=new", func(b *testing.B) { newCounters(b, &c) })
			b.Run("case=collect", func(b *testing.B) { measureGC(b, &c) })
			s := c.openFilled(b, setting{*counters, admitting})
			b.Run("case=uniform", func(b *testing.B) { decideInParallel(b, s, *counters, false) })
			b.Run("case=zipf", func(b *testing.B) { decideInParallel(b, s, *counters, true) })
		})
	}
}

// decideInParallel makes decisions on n counters on all processors.
func decideInParallel(b *testing.B, s store, n int, zipf bool) {
	b.Helper()
	numbers := sequence(n, zipf)
	var threads atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	b.RunParallel(func(pb *testing.PB) {
		decide := s()
		own := newKeyWalk(int(threads.Add(1)) * len(numbers) / 3) // each thread starts at a different position
		for pb.Next() {
			decide(own.next(numbers))
		}
	})
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// newCounters measures the first hit of new counters and their memory.
func newCounters(b *testing.B, c *contender) {
	b.Helper()
	var took time.Duration
	var allocs uint64
	var bytes int64
	for b.Loop() {
		heap, rss := inUse(b)
		s := c.open(b, setting{*counters, lasting})
		mallocs, cpu := memory().Mallocs, cpuTime(b)
		c.fill(s, *counters)
		took += cpuTime(b) - cpu
		allocs += memory().Mallocs - mallocs
		newHeap, newRSS := inUse(b)
		bytes += max(newHeap-heap, newRSS-rss)
		runtime.KeepAlive(s)
	}
	made := float64(b.N * *counters)
	b.ReportMetric(float64(took)/made, "cpu-ns/op")
	b.ReportMetric(float64(allocs)/made, "allocs/op")
	b.ReportMetric(float64(bytes)/made, "B/op")
}

// measureGC measures forced garbage collections with idle counters.
func measureGC(b *testing.B, c *contender) {
	b.Helper()
	s := c.openFilled(b, setting{*counters, lasting})
	runtime.GC()
	before := cpuTime(b)
	for b.Loop() {
		runtime.GC()
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
	runtime.KeepAlive(s)
}

// cpuTime returns the CPU time of all threads of this process. It is exact; getrusage may lag by 4
// ms.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// inUse returns the bytes of live objects and of resident memory.
func inUse(tb testing.TB) (heap, rss int64) {
	tb.Helper()
	debug.FreeOSMemory()
	m, err := process.MemoryOf(os.Getpid())
	if err != nil {
		tb.Fatal(err)
	}
	return int64(memory().HeapAlloc), int64(m.RSS)
}

func memory() (m runtime.MemStats) {
	runtime.ReadMemStats(&m)
	return m
}
