//go:build more

package proxy_test

import (
	"sync"
	"sync/atomic"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// TestConcurrentChargesAreExact charges one counter from many threads at once, more often than
// through Envoy: each call contains many equal descriptors.
func TestConcurrentChargesAreExact(t *testing.T) {
	t.Parallel()
	const (
		clients     = 8
		calls       = 100 // per client
		descriptors = 500
		limit       = 200_000 // below clients x calls x descriptors
	)
	limits := startSluice(t, sluice.Options{
		Args: []string{"--config", suite.WriteRules(t, `
domain: d
descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 200000 } }]
`)},
		Env: []string{"GOMAXPROCS=4"},
	})
	many := request()
	for range descriptors - 1 {
		many.Descriptors = append(many.Descriptors, many.GetDescriptors()[0])
	}
	window.AwaitHour(t)
	var passed, denied atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		client := rls.NewRateLimitServiceClient(dial(t, limits.Addr("grpc")))
		wg.Go(func() {
			for range calls {
				got, err := client.ShouldRateLimit(t.Context(), many)
				if err != nil {
					t.Error(err)
					return
				}
				for _, s := range got.GetStatuses() {
					if s.GetCode() == rls.RateLimitResponse_OK {
						passed.Add(1)
					} else {
						denied.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	if want := int64(clients*calls*descriptors - limit); passed.Load() != limit || denied.Load() != want {
		t.Errorf("%d charges were admitted and %d denied, want %d and %d", passed.Load(), denied.Load(), limit, want)
	}
}
