package quota_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// cpuTime returns the CPU time of the sluice process.
func (s *hostileTest) cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.sluice.PID()))
	must.OK(tb, err)
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// scrape reads the metrics.
func (s *hostileTest) scrape(tb testing.TB) {
	tb.Helper()
	suite.Metrics(tb, s.sluice)
}

// BenchmarkHostileStreams measures the attack of [TestHostileStreams]: the fraction of a core that
// sluice uses 12 to 25 s after the last report, the slowest of 50 calls a second, and the time for
// a scrape, for reading the state, until changed rules are active, and for the shutdown.
//
//	go test ./e2e/quota -run xxx -bench HostileStreams -benchtime 1x
func BenchmarkHostileStreams(b *testing.B) {
	for b.Loop() {
		s := startHostileTest(b)
		attack(b, s.sluice.Addr("grpc"), 0, 20, 1, 10_000)
		ctx, cancel := context.WithCancel(b.Context())
		slowest, failed := time.Duration(0), 0
		var calling sync.WaitGroup
		calling.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				if n%250 == 0 {
					s.reportHonest(b)
				}
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				callCtx, end := context.WithTimeout(b.Context(), time.Second)
				begun := time.Now()
				if s.callHonest(callCtx) != nil {
					failed++
				}
				slowest = max(slowest, time.Since(begun))
				end()
			}
		})
		time.Sleep(12 * time.Second)
		begun, used := time.Now(), s.cpuTime(b)
		time.Sleep(13 * time.Second)
		b.ReportMetric(100*float64(s.cpuTime(b)-used)/float64(time.Since(begun)), "core-%")
		measure := func(name string, do func(testing.TB)) {
			begun := time.Now()
			do(b)
			b.ReportMetric(float64(time.Since(begun).Milliseconds()), name+"-ms")
		}
		measure("scrape", s.scrape)
		measure("state", s.checkState)
		measure("reload", s.lowerLimit)
		cancel()
		calling.Wait()
		b.ReportMetric(float64(slowest.Milliseconds()), "call-ms")
		b.ReportMetric(float64(failed), "lost-calls")
		b.ReportMetric(float64(s.peakMiB(b)), "MiB")
		measure("stop", s.stop)
	}
}
