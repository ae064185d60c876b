package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// BenchmarkOpenPage measures a refresh of the page, which is requested each second, with denied keys
// in each of a hundred domains: 10 ms of CPU time are 1 % of a core.
func BenchmarkOpenPage(b *testing.B) {
	for _, keys := range []int{20, 100} {
		b.Run(fmt.Sprint("keys=", keys), func(b *testing.B) {
			var rules strings.Builder
			for d := range 100 {
				fmt.Fprintf(&rules, "---\ndomain: domain-%d\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 0 } }]\n", d)
			}
			s := servertest.Service(b, answer.Settings{TopKeys: live.Hashed}, rules.String())
			a := newAPI(b, s, zap.NewNop())
			a.Tick(time.Now())
			for d := range 100 {
				for k := range keys {
					r := servertest.OneDescriptor("user", fmt.Sprint("client-", k))
					r.Domain = fmt.Sprint("domain-", d)
					if _, _, err := s.Answer(limiter.Time(time.Now().UnixNano()), time.Hour, &answer.Exchange{}, servertest.Marshal(b, r)); err != nil {
						b.Fatal(err)
					}
				}
			}
			handler, bytes, began := a.Handler(nil), 0, cpuTime(b)
			for b.Loop() {
				w := servertest.RequestAt(servertest.Loopback, handler, http.MethodGet, admin.StatePath+"?rules=active&max=100&keys=100", "localhost", "", "Accept", "application/json")
				if bytes = w.Body.Len(); w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
			b.ReportMetric(float64(bytes), "bytes/refresh")
			b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/1000/float64(b.N), "cpu-ms/refresh")
		})
	}
}

// cpuTime returns the CPU time of this process, which other processes do not affect much.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
