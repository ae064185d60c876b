//go:build more

package proxy_test

import (
	"fmt"
	"maps"
	"net/http"
	"syscall"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

const (
	waiters = 10_000
	limit   = 1000 // Envoy's limit of connections to the backend
)

// TestWaitingCallsAreAnsweredAfterRestart has Envoy send 10,000 calls, its maximum, before it knows
// how many streams sluice allows. All are answered.
func TestWaitingCallsAreAnsweredAfterRestart(t *testing.T) {
	t.Parallel()
	got := restartWithWaitingCalls(t, "")
	if want := map[string]int{"200": limit, "429": waiters - limit}; !maps.Equal(got, want) {
		t.Errorf("%d waiting requests got %v, want %v", waiters, got, want)
	}
}

// TestCallsBeyondMaxStreamsFail sends all calls over one connection per thread, as Envoy before
// 1.36 does. Only calls beyond MaxStreams fail.
func TestCallsBeyondMaxStreamsFail(t *testing.T) {
	t.Parallel()
	got := restartWithWaitingCalls(t, "max_concurrent_streams: 2147483647")
	answered := got["200"] + got["429"]
	if got["200"] != limit || answered < 2*1024 || answered+got["500"] != waiters {
		t.Errorf("%d waiting requests got %v, want 200 for %d, 429 for at least 1048, otherwise 500", waiters, got, limit)
	}
}

// restartWithWaitingCalls kills sluice and restarts it on the same port when all calls wait. It
// returns the number of each answer. http2 contains more options of Envoy's connections to sluice,
// none of which may be closed.
func restartWithWaitingCalls(t *testing.T, http2 string) map[string]int {
	t.Helper()
	config := suite.WriteRules(t, fmt.Sprintf(`
domain: d
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: %d } }]
`, limit))
	binary, err := plainBinary()
	must.OK(t, err)
	options := sluice.Options{Binary: binary, Args: []string{"--config", config}, Addrs: map[string]string{"grpc": storetest.FreeAddress(t)}}
	first := startSluice(t, options)
	p := startProxy(t, []listener{{
		rateLimit: []string{"{ timeout: 180s, failure_mode_deny: true }"}, routes: limitedBy(byHeader("x-user", "user")),
	}}, patientCluster+`
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: { http2_protocol_options: { `+http2+` } }
`, first)
	window.AwaitHour(t)
	p.http2.Timeout = suite.Patience
	if got := p.mustSend(t, "ingress", userHeader("a", 1)); got != http.StatusOK {
		t.Fatalf("before the restart: status %d, want 200", got)
	}
	first.Kill()
	limits := startSluice(t, options)
	freeze(t, limits)
	var requests burst
	for range waiters {
		requests.send(t.Context(), p, clientRequest{http2: true, headers: header("X-User", "b")})
	}
	requests.await(t, waiters, p)
	t.Logf("%d calls wait on %d connections", p.envoyStat(t, "cluster.sluice.upstream_rq_active"), p.envoyStat(t, "cluster.sluice.upstream_cx_active"))
	signal(t, limits, syscall.SIGCONT)
	got := requests.wait()
	if n := metric(t, limits, "sluice_grpc_connections_closed_total"); n != 0 {
		t.Errorf("%v connections were closed, want none; log of sluice:\n%s", n, limits.Log())
	}
	return got
}
