//go:build more

package proxy_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// pick returns short, or with SLUICE_EFFORT=100 long.
func pick(t *testing.T, short, long int) int {
	t.Helper()
	if effort.Level(t) >= effort.All {
		return long
	}
	return short
}

const burstRules = `
domain: d
descriptors:
- { key: witness, rate_limit: { unit: year, requests_per_unit: 0 } }
- { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }
- { key: delayed, rate_limit: { unit: second, requests_per_unit: 25, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 20000 } }
`

// bystanderListeners have a limit of 0. On an error one listener allows the request and the other
// responds with 500.
func bystanderListeners() []listener {
	routes := limitedBy(`{ generic_key: { descriptor_key: witness, descriptor_value: w } }`)
	return []listener{
		{name: "open", rateLimit: []string{"failure_mode_deny: false"}, routes: routes},
		{name: "closed", rateLimit: []string{"failure_mode_deny: true"}, routes: routes},
	}
}

// bystanders are clients whose answers must not depend on other clients.
type bystanders struct{ loads map[string]*load }

func startBystanders(t *testing.T, p *proxy, clients int) bystanders {
	t.Helper()
	w := bystanders{make(map[string]*load)}
	for _, l := range bystanderListeners() {
		w.loads[l.name] = startLoad(t, clients, func() (string, error) {
			status, err := p.send(t.Context(), l.name, clientRequest{})
			return strconv.Itoa(status), err
		})
	}
	return w
}

func (w bystanders) total() (answers int) {
	for _, l := range w.loads {
		answers += l.total()
	}
	return answers
}

// await waits for the given number of answers.
func (w bystanders) await(t *testing.T, answers int) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("%d answers to other clients", answers), func() bool { return w.total() >= answers })
}

// stop stops the clients. All their answers must have been 429.
func (w bystanders) stop(t *testing.T) {
	t.Helper()
	for name, l := range w.loads {
		if got := l.stop(); !slices.Equal(slices.Collect(maps.Keys(got)), []string{"429"}) {
			t.Errorf("%s: the other clients' answers are %v, want only 429", name, got)
		}
	}
}

// patientCluster contains fields of the cluster sluice for an Envoy with thousands of requests,
// which may notice late that a connection is established.
const patientCluster = `
circuit_breakers: { thresholds: [{ max_requests: 10000, max_pending_requests: 10000 }] }
`

// burst is a set of concurrent requests.
type burst struct {
	wg     sync.WaitGroup
	mu     sync.Mutex
	counts map[string]int
}

// send adds a request to the listener ingress.
func (r *burst) send(ctx context.Context, p *proxy, a clientRequest) {
	r.wg.Go(func() {
		status, err := p.send(ctx, "ingress", a)
		got := strconv.Itoa(status)
		if err != nil {
			got = fmt.Sprintf("%.200v", err)
			if ctx.Err() != nil {
				got = "left"
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.counts == nil {
			r.counts = make(map[string]int)
		}
		r.counts[got]++
	})
}

// wait returns the number of each status or error.
func (r *burst) wait() map[string]int {
	r.wg.Wait()
	return r.counts
}

// await waits until the given number of requests has reached the Envoys and waits for sluice or is
// answered.
func (r *burst) await(t *testing.T, all int, envoys ...*proxy) {
	t.Helper()
	suite.Eventually(t, "all calls wait", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := 0
		for _, p := range envoys {
			n += p.envoyStat(t, "cluster.sluice.upstream_rq_active") + p.envoyStat(t, "cluster.sluice.upstream_rq_pending_active")
		}
		for _, answers := range r.counts {
			n += answers
		}
		return n == all
	})
}

// TestDisconnectingClients has many clients with long headers wait for delayed replies. Half of
// them disconnect. Few replies are due per second, so that many clients wait even if a busy machine
// sends them slowly.
func TestDisconnectingClients(t *testing.T) {
	t.Parallel()
	limits := startPlain(t, nil, "--config", suite.WriteRules(t, burstRules))
	p := startProxy(t, append(bystanderListeners(), listener{
		rateLimit: []string{"failure_mode_deny: false"}, routes: limitedBy(`{ generic_key: { descriptor_key: delayed, descriptor_value: h } }`),
		tracing: tracer("opentelemetry", openTelemetry),
	}), "", limits)
	others := startBystanders(t, p, 1)
	long := header("Traceparent", traceparent, "Tracestate", strings.Repeat("s", 59*kib))
	all := pick(t, 400, 1200)
	disconnecting, disconnect := context.WithCancel(t.Context())
	defer disconnect()
	var staying, going burst
	for range all / 2 {
		staying.send(t.Context(), p, clientRequest{headers: long})
		going.send(disconnecting, p, clientRequest{headers: long})
	}
	suite.Eventually(t, "many calls wait", func() bool { return metric(t, limits, "sluice_delayed_responses_pending") >= float64(all/8) })
	disconnect()
	stayed, left := staying.wait(), going.wait()
	others.await(t, others.total()+10)
	if want := map[string]int{"200": all / 2}; !maps.Equal(stayed, want) {
		t.Errorf("the clients that stayed got %v, want %v", stayed, want)
	}
	suite.Eventually(t, "no call waits", func() bool { return metric(t, limits, "sluice_delayed_responses_pending") == 0 })
	others.stop(t)
	if n := metric(t, limits, "sluice_grpc_connections_closed_total"); n != 0 {
		t.Errorf("%v connections were closed, want none", n)
	}
	t.Logf("%d calls: the clients that stayed got %v, the others %v; %v delays were cancelled; %d answers to other clients; peak memory %s",
		all, stayed, left, metric(t, limits, "sluice_delayed_responses_cancelled_total"), others.total(), peakMemory(limits))
}
