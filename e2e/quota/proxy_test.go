package quota_test

import (
	"os"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestProxyBetween runs an HTTP proxy between Envoys and sluice. It acknowledges PINGs before the
// Envoy has received the messages sent before them. With grpc-go, reports of the Envoy confirm
// messages, so the bound holds. With the built-in transport it may be exceeded for the time that a
// message takes from the proxy to the Envoy, which no test can bound; but each Envoy admits at most
// the limit.
func TestProxyBetween(t *testing.T) {
	t.Parallel()
	for transport, rate := range map[string]float64{"grpc-go": 100, "builtin": 2 * 100} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := start(t, rules100, 0, "--grpc-transport", transport)
			config, err := os.ReadFile("testdata/between.yaml")
			must.OK(t, err)
			proxy := suite.StartEnvoy(t, root, envoy.Options{Bootstrap: config, Clusters: map[string][]string{"sluice": {s.addr}}})
			s.addr = proxy.Addr("between")
			for range 2 {
				s.startEnvoy(t)
			}
			s.awaitShares(t, "al")
			s.runLoad(t, "al", []time.Duration{5 * time.Millisecond, time.Hour}, func() { time.Sleep(8 * time.Second) })
			s.runLoad(t, "al", []time.Duration{time.Hour, 5 * time.Millisecond}, func() {
				suite.Eventually(t, "the other Envoy has most of the limit", func() bool { return s.admittedPerSecond(1, "al") >= 60 })
			})
			s.checkBound(t, "al", rate, 2*10)
		})
	}
}
