package concurrency_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// withOtherEnvoy returns the same testbed with another Envoy, which calls sluice from another
// address as if from another machine. replacements are those of startEnvoy.
func (s *testbed) withOtherEnvoy(t *testing.T, replacements ...string) *testbed {
	t.Helper()
	other := *s
	other.envoy = other.startEnvoy(t, append(replacements, "- name: sluice\n",
		"- name: sluice\n      upstream_bind_config: { source_address: { address: 127.0.0.2, port_value: 0 } }\n")...)
	return &other
}

// TestDeadEnvoyReleases checks that the permits of a killed Envoy are released without end calls.
// Those of another Envoy stay held, even if it makes only one call per connection and therefore has
// none while its streams continue.
func TestDeadEnvoyReleases(t *testing.T) {
	t.Parallel()
	for name, replacement := range map[string][]string{
		"the other Envoy has a connection": nil,
		"the other Envoy has none": {
			"explicit_http_config:", "common_http_protocol_options: { max_requests_per_connection: 1 }\n          explicit_http_config:",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dead := startTestbed(t, releaseRules, nil)
			alive := dead.withOtherEnvoy(t, replacement...)
			alStreams := alive.startStreams(t, "al", 4)
			dead.startStreams(t, "bo", 4)
			if replacement != nil {
				suite.Eventually(t, "the live Envoy has no connection", func() bool { return alive.connections(t) == 0 })
			}
			time.Sleep(400 * time.Millisecond) // so that the loss does not follow a reply at once
			dead.envoy.Kill()
			dead.awaitFreePermits(t, "bo", 4)
			alStreams.checkHeldThenReleased(t)
			if got := dead.metric(t, "sluice_leases_released_total", `by="connection"`); got != 8 { // 4 streams, two filters
				t.Errorf("%v leases were released after the loss of an Envoy, want 8", got)
			}
		})
	}
}

// checkHeldThenReleased checks that the four streams hold their permits, and release them when they
// end.
func (f *streams) checkHeldThenReleased(t *testing.T) {
	t.Helper()
	if got := f.freePermits(t, f.user); got != 0 {
		t.Errorf("%d permits of %s are free during its streams, want none", got, f.user)
	}
	for range 4 {
		f.finishOne(t)
	}
	f.awaitFreePermits(t, f.user, 4)
}

// connections returns the number of connections from the testbed's Envoy to sluice.
func (s *testbed) connections(t *testing.T) int {
	t.Helper()
	stats := suite.Page(suite.Get(t, "http://"+s.envoy.Admin+"/stats/prometheus?usedonly"))
	return int(stats.Sum("envoy_cluster_upstream_cx_active", `envoy_cluster_name="sluice"`))
}

// TestAbandonedFirstCall checks that a first call that Envoy abandons at its timeout leaves no
// permit held.
func TestAbandonedFirstCall(t *testing.T) {
	t.Parallel()
	s := startTestbed(t, releaseRules, nil)
	s.envoy = s.startEnvoy(t, "domain: d\n                      timeout: 3600s", "domain: d\n                      timeout: 0.05s")
	must.OK(t, s.sluice.Signal(syscall.SIGSTOP))
	for range 4 {
		if got, err := s.get(t.Context(), "al", "/"); got != http.StatusInternalServerError {
			t.Errorf("without an answer of the service, status %d (%v), want 500", got, err)
		}
	}
	must.OK(t, s.sluice.Signal(syscall.SIGCONT))
	suite.Eventually(t, "sluice has received all calls", func() bool {
		return s.metric(t, "ratelimit_service_rate_limit_total_hits", `domain="d",key1="user_al"`) == 4
	})
	s.awaitFreePermits(t, "al", 4)
}
