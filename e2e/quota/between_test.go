package quota_test

import (
	"os"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestProxyBetween has a proxy for HTTP stand between Envoys and sluice, which acknowledges PINGs by itself, before the
// Envoy has what was sent. By grpc-go a share is confirmed by reports, which come from the Envoy: the bound holds. By
// the built-in transport it may be exceeded for as long as a message takes from the proxy to the Envoy, which no test can
// bound; each Envoy has no more than the limit all the same.
func TestProxyBetween(t *testing.T) {
	t.Parallel()
	for transport, most := range map[string]float64{"grpc-go": 100, "builtin": 2 * 100} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := play(t, hundredASecond, 0, "--grpc-transport", transport)
			config, err := os.ReadFile("testdata/between.yaml")
			must.OK(t, err)
			between := suite.StartEnvoy(t, root, envoy.Options{Bootstrap: config, Clusters: map[string][]string{"sluice": {s.addr}}})
			s.addr = between.Addr("between")
			for range 2 {
				s.startEnvoy(t)
			}
			s.awaitShares(t, "al")
			s.during(t, "al", []time.Duration{5 * time.Millisecond, time.Hour}, func() { time.Sleep(8 * time.Second) })
			s.during(t, "al", []time.Duration{time.Hour, 5 * time.Millisecond}, func() {
				suite.Eventually(t, "the other Envoy has most of the limit", func() bool { return s.inASecond(1, "al") >= 60 })
			})
			s.hold(t, "al", most, 2*10)
		})
	}
}
