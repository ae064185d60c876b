//go:build more

package proxy_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// checkNoErrors fails the test if sluice answered a request without a decision.
func checkNoErrors(t *testing.T, limits *sluice.Sluice) {
	t.Helper()
	for _, name := range []string{"sluice_rejected_requests_total", "sluice_grpc_connections_closed_total", "ratelimit_service_call_should_rate_limit_service_error"} {
		if n := metric(t, limits, name); n != 0 {
			t.Errorf("%s is %v, want 0; log of sluice:\n%s", name, n, limits.Log())
		}
	}
}

// longTracestate is the longest tracestate that OpenTelemetry accepts: 32 members of 513 bytes. It
// is kept with the span until the span is sent.
var longTracestate = func() string {
	var members []string
	for i := range 32 {
		members = append(members, fmt.Sprintf("k%02d%s=%s", i, strings.Repeat("k", 253), strings.Repeat("v", 256)))
	}
	return strings.Join(members, ",")
}()

// unusedAddr is an address without a listener.
const unusedAddr = "127.0.0.1:1"

// TestLongTracestates has one client send long tracestates, which Envoy copies into the call, while
// other clients send requests.
func TestLongTracestates(t *testing.T) {
	t.Parallel()
	limits := startSluice(t, sluice.Options{
		Args: []string{"--tracing", "--config", suite.WriteRules(t, burstRules)},
		Env:  []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + unusedAddr},
	})
	p := startProxy(t, append(bystanderListeners(), listener{
		rateLimit: []string{"failure_mode_deny: false"}, routes: limitedBy(byHeader("x-user", "user")),
		tracing: tracer("opentelemetry", openTelemetry),
	}), "", limits)
	window.AwaitHour(t)
	others := startBystanders(t, p, 4)
	got := map[int]int{}
	for i := 1; others.total() < pick(t, 4000, 40_000); i++ {
		state := strings.Repeat("s", 1+i*997%(59*kib))
		if i%2 == 0 {
			state = longTracestate
		}
		got[p.mustSend(t, "ingress", clientRequest{headers: header("X-User", "al", "Traceparent", traceparent, "Tracestate", state)})]++
	}
	others.stop(t)
	if got[http.StatusOK] != 1 || len(got) != 2 || got[http.StatusTooManyRequests] == 0 {
		t.Errorf("with a limit of 1, requests with a long tracestate got %v, want one 200 and otherwise 429", got)
	}
	checkNoErrors(t, limits)
	t.Logf("%d answers to other clients during %v", others.total(), got)
}

// TestConcurrentLongRequests has the clients of one Envoy concurrently send the longest header that
// it accepts. Ten descriptors contain it. Half of the clients share a limit of one.
func TestConcurrentLongRequests(t *testing.T) {
	t.Parallel()
	rules, descriptors := &strings.Builder{}, make([]string, 10)
	rules.WriteString(burstRules)
	for i := range descriptors {
		fmt.Fprintf(rules, "- { key: u%d, rate_limit: { unit: year, requests_per_unit: 1 } }\n", i)
		descriptors[i] = byHeader("x-user", fmt.Sprint("u", i))
	}
	limits := startPlain(t, nil, "--config", suite.WriteRules(t, rules.String()))
	p := startProxy(t, append(bystanderListeners(),
		listener{rateLimit: []string{"failure_mode_deny: false"}, routes: limitedBy(descriptors...)}), "", limits)
	window.AwaitHour(t)
	others := startBystanders(t, p, 1)
	others.await(t, 10)
	before := peakMemory(limits)
	var (
		rivals, own burst
		all         = pick(t, 100, 500)
		long        = strings.Repeat("u", 59*kib)
	)
	for i := range all / 2 {
		rivals.send(t.Context(), p, clientRequest{headers: header("X-User", long)})
		own.send(t.Context(), p, clientRequest{headers: header("X-User", fmt.Sprint(i, long))})
	}
	one, each := rivals.wait(), own.wait()
	others.stop(t)
	// Clients that share a limit may each have lost the race for one of the ten descriptors.
	if one["200"] > 1 || one["200"]+one["429"] != all/2 {
		t.Errorf("%d requests of one user with a limit of 1 got %v, want at most one 200 and otherwise 429", all/2, one)
	}
	if each["200"] != all/2 {
		t.Errorf("%d users with one request each got %v, want only 200", all/2, each)
	}
	checkNoErrors(t, limits)
	t.Logf("%d simultaneous requests of 10 x %d bytes: peak memory %s, %s before; %d answers to other clients",
		all, len(long), peakMemory(limits), before, others.total())
}

// TestConcurrentLongRequestsOfManyEnvoys has several Envoys send such requests while sluice is
// stopped, so that all are processed at once when it continues.
func TestConcurrentLongRequestsOfManyEnvoys(t *testing.T) {
	t.Parallel()
	const limit = 100
	rules := strings.ReplaceAll(twice, "LIMIT", strconv.Itoa(limit))
	limits := startPlain(t, nil, "--config", suite.WriteRules(t, rules))
	envoys := make([]*proxy, pick(t, 2, 5))
	for i := range envoys {
		envoys[i] = startProxy(t, []listener{{
			rateLimit: []string{"{ timeout: 180s, failure_mode_deny: true }"},
			routes:    limitedBy(byHeader("x-user", "first"), byHeader("x-user", "second")),
		}}, patientCluster, limits)
		envoys[i].http2.Timeout = suite.Patience
	}
	window.AwaitHour(t)
	freeze(t, limits)
	var (
		requests burst
		all      = len(envoys) * pick(t, 300, 1600)
		long     = header("X-User", strings.Repeat("u", 59*kib))
	)
	for i := range all {
		requests.send(t.Context(), envoys[i%len(envoys)], clientRequest{http2: true, headers: long})
	}
	requests.await(t, all, envoys...)
	signal(t, limits, syscall.SIGCONT)
	got := requests.wait()
	// Each request charges two descriptors, and another request may be decided between the two
	// charges.
	if got["200"] == 0 || got["200"] > limit || got["200"]+got["429"] != all {
		t.Errorf("with a limit of %d, %d requests got %v, want status 200 for at most that number and otherwise 429", limit, all, got)
	}
	checkNoErrors(t, limits)
	t.Logf("%d requests of 2 x %d bytes by %d Envoys got %v; peak memory %s", all, 59*kib, len(envoys), got, peakMemory(limits))
}

const twice = `
domain: d
descriptors:
- { key: first, rate_limit: { unit: year, requests_per_unit: LIMIT } }
- { key: second, rate_limit: { unit: year, requests_per_unit: LIMIT } }
`
