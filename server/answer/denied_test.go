package answer

import (
	"fmt"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// deniedRules deny everything and record each user.
const deniedRules = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 0}
`

// TestDeniedRequestAllocatesNothing checks known and new clients, in each mode.
func TestDeniedRequestAllocatesNothing(t *testing.T) {
	requests := userRequests(t, 2000)
	for _, mode := range []string{live.Off, live.Hashed, live.Clear} {
		s := benchService(t, Settings{TopKeys: mode, DeniedBy: true}, deniedRules)
		x := &Exchange{}
		i := 0
		ask := func() {
			if _, _, err := s.Answer(benchNow, 0, x, requests[i%len(requests)]); err != nil {
				t.Fatal(err)
			}
			i++
		}
		ask() // grow the memory
		if n := must.AllocsPerRun(1000, ask); n != 0 {
			t.Errorf("%s: %v allocations, want 0", mode, n)
		}
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
