package proxy_test

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// TestWhoeverWaitsIsAnsweredWhenSluiceIsBack kills sluice and starts it again on its port,
// where it does not run yet: Envoy has sent 10,000 calls, as many as it may, before sluice
// says how many it takes. Then it runs, and answers each.
func TestWhoeverWaitsIsAnsweredWhenSluiceIsBack(t *testing.T) {
	t.Parallel()
	comeBack(t, "")
}

func comeBack(t *testing.T, http2 string) {
	t.Helper()
	const (
		all   = 10_000
		limit = 1000 // which is what Envoy opens to the backend at once
	)
	config := writeRules(t, fmt.Sprintf(`
domain: d
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: %d } }]
`, limit))
	first := startPlain(t, nil, "--config", config)
	p := startProxy(t, []listener{{
		rateLimit: []string{"{ timeout: 60s, failure_mode_deny: true }"}, routes: limitedBy(byHeader("x-user", "user")),
	}}, `
circuit_breakers: { thresholds: [{ max_requests: 10000, max_pending_requests: 10000 }] }
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: { http2_protocol_options: { `+http2+` } }
`, first)
	window.AwaitHour(t)
	p.http2.Timeout = suite.Patience
	if got := p.status(t, "ingress", user("a", 1)); got != http.StatusOK {
		t.Fatalf("before: status %d, want 200", got)
	}
	first.Kill()
	binary, err := plainBinary()
	if err != nil {
		t.Fatal(err)
	}
	limits := startSluice(t, sluice.Options{
		Binary: binary, Args: []string{"--config", config}, Addrs: map[string]string{"grpc": first.Addr("grpc")},
	})
	if err := limits.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		got = map[string]int{}
	)
	for range all {
		wg.Go(func() {
			status, err := p.sent(t.Context(), "ingress", ask{http2: true, headers: header("X-User", "b")})
			answer := strconv.Itoa(status)
			if err != nil {
				answer = err.Error()
			}
			mu.Lock()
			got[answer]++
			mu.Unlock()
		})
	}
	waiting := func() int {
		mu.Lock()
		defer mu.Unlock()
		n := p.stat(t, "cluster.sluice.upstream_rq_active") + p.stat(t, "cluster.sluice.upstream_rq_pending_active")
		for _, answers := range got {
			n += answers
		}
		return n
	}
	suite.Eventually(t, "all calls wait", func() bool { return waiting() == all })
	t.Logf("%d calls wait on %d connections", p.stat(t, "cluster.sluice.upstream_rq_active"), p.stat(t, "cluster.sluice.upstream_cx_active"))
	if err := limits.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if want := map[string]int{"200": limit, "429": all - limit}; !maps.Equal(got, want) {
		t.Errorf("of %d requests that waited, the answers are %v, want %v", all, got, want)
	}
	if n := metric(t, limits, "sluice_ended_connections_total"); n != 0 {
		t.Errorf("%v connections were ended, want none", n)
	}
}
