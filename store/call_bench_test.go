//go:build more

package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// BenchmarkCalls sends requests to a real server from several concurrent callers, on 10,000
// counters. It reports the CPU time per call of this process, callers included, and of the server.
func BenchmarkCalls(b *testing.B) {
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 31, Window: time.Hour}
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			srv := storetest.Start(b)
			s := runStore(b, Options{Server: serverAt(srv)})
			storetest.Eventually(b, "up", s.Up)
			b.ReportAllocs()
			theirs, mine := srv.CPU(), processCPU(b)
			var n atomic.Int64
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					var c caller
					for {
						i := n.Add(1)
						if i > int64(b.N) {
							return
						}
						one := oneHit(uint64(i%10000), p)
						one.ID.Hi, one.ID.Lo = one.ID.Lo*0x9e3779b97f4a7c15, one.ID.Lo*0xbf58476d1ce4e5b9
						if err := c.decide(s, one); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64((processCPU(b)-mine).Nanoseconds())/1000/float64(b.N), "client-us/op")
			b.ReportMetric(float64((srv.CPU()-theirs).Nanoseconds())/1000/float64(b.N), "server-us/op")
		})
	}
}

// processCPU returns the CPU time of this process.
func processCPU(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	must.OK(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
