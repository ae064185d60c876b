package proxy_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestFailureModes kills sluice. Each listener handles the outage as configured. Both apply limits
// again after a restart, with new counters.
func TestFailureModes(t *testing.T) {
	t.Parallel()
	suite.SkipAtYearEnd(t)
	config := suite.WriteRules(t, `
domain: d
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1 } }]
`)
	start := func(addr string) *sluice.Sluice {
		return startSluice(t, sluice.Options{Args: []string{"--config", config}, Addrs: map[string]string{"grpc": addr}})
	}
	addr := "unix://" + filepath.Join(suite.ShortDir(t), "sluice.sock")
	first := start(addr)
	p := startProxyTo(t, []listener{
		{name: "open", rateLimit: []string{"failure_mode_deny: false"}, routes: everyUser},
		{name: "closed", rateLimit: []string{"failure_mode_deny: true"}, routes: everyUser},
	}, "", []string{addr})
	get := func(listener, user string) reply {
		t.Helper()
		r, err := p.getFrom(t.Context(), listener, "/", "x-user: "+user)
		must.OK(t, err)
		return r
	}
	limited := func() {
		t.Helper()
		for _, listener := range []string{"open", "closed"} {
			for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				if got := get(listener, listener); got.status != want {
					t.Errorf("%s, request %d: status %d, want %d", listener, i+1, got.status, want)
				}
			}
		}
	}

	limited()
	first.Kill()
	for range 10 {
		if got := get("open", "open"); got.status != http.StatusOK {
			t.Errorf("listener open without sluice: status %d, want 200", got.status)
		}
		if got := get("closed", "closed"); got.status != http.StatusInternalServerError {
			t.Errorf("listener closed without sluice: status %d, want 500", got.status)
		}
	}
	start(addr)
	for _, listener := range []string{"open", "closed"} {
		suite.Eventually(t, listener+": Envoy reaches sluice again", func() bool {
			return get(listener, "canary").get("X-Ratelimit-Limit") != ""
		})
	}
	limited()
}
