package proxy_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

const highLimitRules = `
domain: d
descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1000000 } }]
`

// TestShutdownLosesNoRequest stops one of two replicas under load. Envoy learns of the shutdown
// from the health check and uses the other replica. A request without a reply from sluice fails. If
// Envoy does not notice the shutdown in time, as on a busy machine, the next attempt uses a longer
// delay.
func TestShutdownLosesNoRequest(t *testing.T) {
	t.Parallel()
	for delay := time.Second; !shutdownLosesNoRequest(t, delay); delay *= 2 {
		t.Logf("Envoy did not switch to the other replica within %v", delay)
	}
}

// shutdownLosesNoRequest reports whether Envoy noticed the shutdown during the drain.
func shutdownLosesNoRequest(t *testing.T, delay time.Duration) (noticed bool) {
	t.Helper()
	config := suite.WriteRules(t, highLimitRules)
	first := startSluice(t, sluice.Options{Args: []string{"--config", config, "--drain-delay", delay.String()}})
	second := startSluice(t, sluice.Options{Args: []string{"--config", config}})
	p := startProxyWith(t, envoy.Options{Workers: 1}, userListeners, `
health_checks:
  - { timeout: 3600s, interval: 0.1s, no_traffic_interval: 0.1s, unhealthy_threshold: 2, healthy_threshold: 1, grpc_health_check: {} }
`, []string{first.Addr("grpc"), second.Addr("grpc")})
	const clients = 8
	l := startLoad(t, clients, func() (string, error) {
		got, err := p.getFrom(t.Context(), "ingress", "/", "x-user: al")
		return strconv.Itoa(got.status), err
	})
	calls := func(s *sluice.Sluice) float64 { return metric(t, s, "ratelimit_service_total_requests") }
	suite.Eventually(t, "calls to both replicas", func() bool { return calls(first) > 100 && calls(second) > 100 })

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stopProcess(t, first.Process)
	}()
	// Envoy's worker notices some answers after its main thread.
	until := 0
	suite.Eventually(t, "the first replica has exited", func() bool {
		if until == 0 && p.envoyStat(t, "cluster.sluice.membership_healthy") == 1 {
			until = l.total() + 20*clients
		}
		noticed = noticed || until > 0 && l.total() >= until
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if !noticed {
		l.stop()
		return false
	}
	before := calls(second)
	l.awaitAnswers(t, 500)
	if got := calls(second) - before; got < 500-clients {
		t.Errorf("after the exit of the first replica the second got %v of 500 calls", got)
	}
	if got := slices.Collect(maps.Keys(l.stop())); !slices.Equal(got, []string{"200"}) {
		t.Errorf("answers are %q, want 200 only", got)
	}
	return true
}

// stopProcess stops a process, which must exit with 0.
func stopProcess(t *testing.T, p *process.Process) {
	t.Helper()
	if code, err := p.Stop(t.Context()); code != 0 || err != nil {
		t.Errorf("Stop() = %d, %v, want 0, nil; its log:\n%s", code, err, p.Log())
	}
}

func (p *proxy) envoyStat(t *testing.T, name string) int {
	t.Helper()
	resp, err := p.client.Get("http://" + p.Admin + "/stats?filter=^" + name + "$")
	must.OK(t, err)
	defer resp.Body.Close()
	var n int
	if _, err := fmt.Fscanf(resp.Body, name+": %d", &n); err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return n
}
