package answer

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/server/live"
)

// deniedRules deny everything and record each user.
const deniedRules = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 0}
`

// BenchmarkDenied compares denied requests with and without recording of denied keys: of one
// flooder, of a few clients, and of a new client for each request. The three modes alternate in
// each round, so that other load affects all of them. The metrics are the additional cost of hashed
// and clear over off.
func BenchmarkDenied(b *testing.B) {
	modes := []string{live.Off, live.Hashed, live.Clear}
	for _, clients := range []int{1, 64, 20_000} {
		b.Run(strconv.Itoa(clients), func(b *testing.B) {
			requests := userRequests(b, clients)
			services := make([]*Service, len(modes))
			took := make([]time.Duration, len(modes))
			for i, mode := range modes {
				services[i] = benchService(b, Settings{TopKeys: mode}, deniedRules)
			}
			const round = 20_000
			n := 0
			x := &Exchange{}
			for b.Loop() {
				for i, s := range services {
					before := benchCPU(b)
					for j := range round {
						if _, _, err := s.Answer(benchNow, 0, x, requests[(n+j)%len(requests)]); err != nil {
							b.Fatal(err)
						}
					}
					took[i] += benchCPU(b) - before
				}
				n += round
			}
			for i, mode := range modes {
				b.ReportMetric(float64(took[i].Nanoseconds()-took[0].Nanoseconds())/float64(b.N*round), mode+"-ns")
			}
			b.ReportMetric(float64(took[0].Nanoseconds())/float64(b.N*round), "request-ns")
		})
	}
}

// userRequests returns n encoded requests, each of a different user.
func userRequests(tb testing.TB, n int) [][]byte {
	tb.Helper()
	requests := make([][]byte, n)
	for i := range requests {
		requests[i] = marshal(tb, &rls.RateLimitRequest{Domain: "edge", Descriptors: []*rlcommon.RateLimitDescriptor{
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("user", fmt.Sprintf("user-%06d", i))}},
		}})
	}
	return requests
}
