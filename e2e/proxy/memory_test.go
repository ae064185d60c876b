//go:build more

package proxy_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// plainBinary builds sluice without the race detector, which multiplies its memory.
var plainBinary = sync.OnceValues(func() (string, error) {
	if !raceEnabled() {
		return sluiceBinary, nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(sluiceBinary), "plain")
	if err != nil {
		return "", err
	}
	return sluice.Build(context.Background(), root, dir)
})

func startPlain(t *testing.T, env []string, args ...string) *sluice.Sluice {
	t.Helper()
	binary, err := plainBinary()
	must.OK(t, err)
	return startSluice(t, sluice.Options{Binary: binary, Args: args, Env: env})
}

// residentBytes returns the resident memory of sluice.
func residentBytes(t *testing.T, s *sluice.Sluice) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprint("/proc/", s.PID(), "/statm"))
	if err != nil {
		t.Skip(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestMemoryOfDelayedCalls measures 10,000 calls with delayed replies.
func TestMemoryOfDelayedCalls(t *testing.T) {
	t.Parallel()
	const (
		connections = 10
		calls       = 1000 // per connection
		all         = connections * calls
		most        = 16 << 10 // maximum bytes per call
	)
	limits := startPlain(t, nil, "--config", suite.WriteRules(t, `
domain: d
descriptors:
  - key: user
    rate_limit: { unit: second, requests_per_unit: 334, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 20000 }
`))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	clients := make([]rls.RateLimitServiceClient, connections)
	for i := range clients {
		clients[i] = rls.NewRateLimitServiceClient(dial(t, limits.Addr("grpc")))
		peek := request()
		peek.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
		if _, err := clients[i].ShouldRateLimit(ctx, peek); err != nil {
			t.Fatal(err)
		}
	}
	before := residentBytes(t, limits)

	call := func(client rls.RateLimitServiceClient, hits uint64) {
		wg.Go(func() {
			r := request()
			r.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
			if got, err := client.ShouldRateLimit(ctx, r); status.Code(err) != codes.Canceled {
				t.Errorf("a delayed call got %v, %v, want it cancelled", got.GetOverallCode(), err)
			}
		})
	}
	waiting := func(want float64) func() bool {
		return func() bool { return metric(t, limits, "sluice_delayed_responses_pending") == want }
	}
	// The first call is delayed by 30 s and all others wait behind it, so none is answered before
	// the last arrives.
	call(clients[0], all)
	suite.Eventually(t, "the first call waits", waiting(1))
	for i := range all {
		call(clients[i%connections], 1)
	}
	suite.Eventually(t, "all calls wait", waiting(1+all))
	each := (residentBytes(t, limits) - before) / all
	t.Logf("%d delayed calls use %d bytes each; %d MiB were resident before", all, each, before>>20)
	if each > most {
		t.Errorf("a delayed call uses %d bytes, want at most %d", each, most)
	}
	cancel()
	wg.Wait()
	suite.Eventually(t, "sluice notices that all clients disconnected", waiting(0))
	if got := metric(t, limits, "sluice_delayed_responses_cancelled_total"); got != 1+all {
		t.Errorf("%v calls were cancelled, want %d", got, 1+all)
	}
}

// peakMemory returns the peak resident memory of sluice, as text.
func peakMemory(s *sluice.Sluice) string {
	m, err := process.MemoryOf(s.PID())
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d MiB", m.Peak>>20)
}
