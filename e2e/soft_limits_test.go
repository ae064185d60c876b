package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// TestSoftLimitsOfReplicas runs two replicas with one store. Their rules come from a management
// server, and defaults make one limit soft and add notify_at to the other. All requests pass, and
// exactly those above the soft limit have its name.
func TestSoftLimitsOfReplicas(t *testing.T) {
	const requests, budget, share = 160, 57, 80
	ads, err := adstest.Start(adstest.Options{})
	must.OK(t, err)
	t.Cleanup(ads.Stop)
	limit := func(name string, n uint32) *pb.RateLimitPolicy {
		return &pb.RateLimitPolicy{Unit: pb.RateLimitUnit(rules.Year), RequestsPerUnit: n, Name: name}
	}
	must.OK(t, ads.Set("1", &pb.RateLimitConfig{Name: "shop", Domain: "shop", Descriptors: []*pb.RateLimitDescriptor{
		{Key: "budget", RateLimit: limit("budget", budget)}, {Key: "share", RateLimit: limit("share", 2*share)},
	}}))
	defaults := filepath.Join(t.TempDir(), "defaults.yaml")
	must.OK(t, os.WriteFile(defaults, []byte(`domain: shop
defaults:
  - { name: budget, rate_limit: { soft: true } }
  - { name: share, rate_limit: { notify_at: 0.5 } }
`), 0o600))
	store := storetest.Start(t)
	var replicas []rlsv3.RateLimitServiceClient
	for range 2 {
		s := suite.StartSluice(t, sluice.Options{Binary: programs.sluice, Args: []string{
			"--xds-addr", ads.Addr(), "--defaults", defaults, "--denied-by", "--soft-header", "x-ratelimit-soft",
			"--store", "redis://" + store.Addr, "--store-timeout", "1m", "--REDIS_TIMEOUT", "1m", "--store-fallback", "error",
		}})
		suite.Eventually(t, "the store is used", func() bool { return suite.Metrics(t, s).Sum("sluice_store_up") == 1 })
		replicas = append(replicas, client(t, s.Addr("grpc")))
	}
	for key, want := range map[string]int{"budget": requests - budget, "share": requests - share + 1} {
		var mu sync.Mutex
		var callers sync.WaitGroup
		reported := 0
		for n := range 8 {
			callers.Go(func() {
				for range requests / 8 {
					reply, err := replicas[n%2].ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*commonv3.RateLimitDescriptor{
						{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: "v"}}},
					}})
					if err != nil || reply.GetOverallCode() != rlsv3.RateLimitResponse_OK {
						t.Errorf("%s: %v, %v, want a reply that passes", key, reply, err)
						return
					}
					var names []string
					for _, h := range slices.Concat(reply.GetRequestHeadersToAdd(), reply.GetResponseHeadersToAdd()) {
						names = append(names, h.GetValue())
					}
					soft := reply.GetDynamicMetadata().GetFields()["soft"].GetStringValue()
					if soft != "" && !slices.Equal(names, []string{key, key}) || soft == "" && names != nil {
						t.Errorf("%s: soft is %q, but the headers are %q", key, soft, names)
					}
					mu.Lock()
					if soft == key {
						reported++
					}
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		if reported != want {
			t.Errorf("%s is reported for %d requests, want %d", key, reported, want)
		}
	}
}
