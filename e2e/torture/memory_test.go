//go:build torture

package torture

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestMemory fills the counter memory with new values at full speed, with a limit on Go's memory.
// The process stays within both limits, and evictions are counted. Counters that were used much
// before keep exact limits.
func TestMemory(t *testing.T) {
	Parallel(t)
	const (
		each        = 500 // descriptors per request
		limit, used = 100, 57
		established = 200
	)
	counters := Pick(16, 64) // MiB
	s := Start(t, Options{
		Rules: "domain: d\ndescriptors:\n  - { key: user, rate_limit: { unit: year, requests_per_unit: 100 } }\n",
		Args:  []string{"--counter-memory", fmt.Sprint(counters, "MiB"), "--max-streams", "64"},
		Env:   []string{"GOMEMLIMIT=128MiB", "GODEBUG=gctrace=1"},
	})
	clients := make([]rls.RateLimitServiceClient, 4)
	for i := range clients {
		clients[i] = rls.NewRateLimitServiceClient(Dial(t, s.Addr("grpc")))
	}
	send := func(ctx context.Context, client rls.RateLimitServiceClient, kind string, from, n int, hits uint32) (*rls.RateLimitResponse, error) {
		keys := make([]Key, n)
		for i := range keys {
			keys[i] = Key{Rule: "user", Value: fmt.Sprint(kind, from+i)}
		}
		request := Request(keys...)
		request.Domain, request.HitsAddend = "d", hits
		return client.ShouldRateLimit(ctx, request)
	}
	expect := func(hits uint32, code rls.RateLimitResponse_Code, remaining uint32) {
		t.Helper()
		got, err := send(t.Context(), clients[0], "old", 0, established, hits)
		must.OK(t, err)
		wrong := 0
		for _, status := range got.GetStatuses() {
			if status.GetCode() != code || status.GetLimitRemaining() != remaining {
				wrong++
			}
		}
		if wrong > 0 || len(got.GetStatuses()) != established {
			t.Errorf("%d hits: %[3]d of %[2]d statuses are not %[4]v with %[5]d remaining", hits, len(got.GetStatuses()), wrong, code, remaining)
		}
	}
	expect(used, rls.RateLimitResponse_OK, limit-used)

	capacity := suite.Metrics(t, s).Sum("sluice_counters_capacity")
	var sent atomic.Int64
	begun := time.Now()
	more := func() bool {
		return time.Since(begun) < Pick(5*time.Second, time.Minute) || float64(sent.Load()) < 2*capacity
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*Patience)
	defer cancel()
	var flood sync.WaitGroup
	for c := range 2 * len(clients) {
		flood.Go(func() {
			for n := c; more(); n += 2 * len(clients) {
				if _, err := send(ctx, clients[c%len(clients)], "new", n*each, each, 1); err != nil {
					t.Error(err)
					return
				}
				sent.Add(each)
			}
		})
	}
	flood.Wait()
	expect(limit-used, rls.RateLimitResponse_OK, 0)
	expect(1, rls.RateLimitResponse_OVER_LIMIT, 0)

	page, usage := suite.Metrics(t, s), Measure(t, s)
	lost := page.Sum("sluice_counters_evicted_total")
	collections := regexp.MustCompile(`gc \d+ @\S+ (\d+)%`).FindAllStringSubmatch(s.Log(), -1)
	if len(collections) == 0 {
		t.Fatal("the log has no lines of the garbage collector")
	}
	t.Logf("%d new counters in %v, capacity %.0f, %.0f evicted; %v; %s%% of CPU time for %d collections",
		sent.Load(), time.Since(begun).Round(time.Second), capacity, lost, usage, collections[len(collections)-1][1], len(collections))
	if least := float64(sent.Load()) - capacity; lost < least {
		t.Errorf("%.0f counters were evicted, want at least %.0f", lost, least)
	}
	if most := (counters + 64) << 20; usage.Peak > most {
		t.Errorf("%d MiB were resident, want at most %d", usage.Peak>>20, most>>20)
	}
}
