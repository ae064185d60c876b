package proxy_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// sized returns the size for this tier: SLUICE_LONG asks for the full one.
func sized(short, long int) int {
	if os.Getenv("SLUICE_LONG") != "" {
		return long
	}
	return short
}

const crowdRules = `
domain: d
descriptors:
- { key: witness, rate_limit: { unit: year, requests_per_unit: 0 } }
- { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }
- { key: held, rate_limit: { unit: second, requests_per_unit: 25, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 20000 } }
`

// witnessListeners have a limit of 0. On an error one lets the request pass, and one
// answers 500.
func witnessListeners() []listener {
	routes := limitedBy(`{ generic_key: { descriptor_key: witness, descriptor_value: w } }`)
	return []listener{
		{name: "open", rateLimit: []string{"failure_mode_deny: false"}, routes: routes},
		{name: "closed", rateLimit: []string{"failure_mode_deny: true"}, routes: routes},
	}
}

// witness is clients of Envoy that are independent of what others send.
type witness struct{ loads map[string]*load }

func startWitness(t *testing.T, p *proxy, clients int) witness {
	t.Helper()
	w := witness{make(map[string]*load)}
	for _, l := range witnessListeners() {
		w.loads[l.name] = startLoad(t, clients, func() (string, error) {
			status, err := p.sent(t.Context(), l.name, ask{})
			return strconv.Itoa(status), err
		})
	}
	return w
}

func (w witness) total() (answers int) {
	for _, l := range w.loads {
		answers += l.total()
	}
	return answers
}

// await returns when there were this many answers.
func (w witness) await(t *testing.T, answers int) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("%d answers of others", answers), func() bool { return w.total() >= answers })
}

// stop ends the witnesses. All their answers must have been 429.
func (w witness) stop(t *testing.T) {
	t.Helper()
	for name, l := range w.loads {
		if got := l.stop(); !slices.Equal(slices.Collect(maps.Keys(got)), []string{"429"}) {
			t.Errorf("%s: the answers of others are %v, want 429 alone", name, got)
		}
	}
}

// patient is fields of the cluster of sluice, for an Envoy that is itself busy with
// thousands of requests. It may learn late that a connection has been made.
const patient = `
circuit_breakers: { thresholds: [{ max_requests: 10000, max_pending_requests: 10000 }] }
`

// rush is requests that are all made at once.
type rush struct {
	wg     sync.WaitGroup
	mu     sync.Mutex
	counts map[string]int
}

// ask makes one more request, to the listener ingress.
func (r *rush) ask(ctx context.Context, p *proxy, a ask) {
	r.wg.Go(func() {
		status, err := p.sent(ctx, "ingress", a)
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

// wait returns how often each status or error was the answer.
func (r *rush) wait() map[string]int {
	r.wg.Wait()
	return r.counts
}

// await returns when this number of requests has reached the Envoys: each waits for
// sluice or has its answer.
func (r *rush) await(t *testing.T, all int, envoys ...*proxy) {
	t.Helper()
	suite.Eventually(t, "all calls wait", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := 0
		for _, p := range envoys {
			n += p.stat(t, "cluster.sluice.upstream_rq_active") + p.stat(t, "cluster.sluice.upstream_rq_pending_active")
		}
		for _, answers := range r.counts {
			n += answers
		}
		return n == all
	})
}

// TestClientsThatGoAwayChangeNothing has many clients wait for held replies at once, each
// with a long header. Half of them go away. So few are released a second that many wait even if a
// busy machine brings them slowly.
func TestClientsThatGoAwayChangeNothing(t *testing.T) {
	t.Parallel()
	limits := startPlain(t, nil, "--config", suite.WriteRules(t, crowdRules))
	p := startProxy(t, append(witnessListeners(), listener{
		rateLimit: []string{"failure_mode_deny: false"}, routes: limitedBy(`{ generic_key: { descriptor_key: held, descriptor_value: h } }`),
		tracing: tracer("opentelemetry", openTelemetry),
	}), "", limits)
	others := startWitness(t, p, 1)
	long := header("Traceparent", traceparent, "Tracestate", strings.Repeat("s", 59*kib))
	all := sized(400, 1200)
	leaving, leave := context.WithCancel(t.Context())
	defer leave()
	var staying, going rush
	for range all / 2 {
		staying.ask(t.Context(), p, ask{headers: long})
		going.ask(leaving, p, ask{headers: long})
	}
	suite.Eventually(t, "many calls wait", func() bool { return metric(t, limits, "sluice_delayed_responses_pending") >= float64(all/8) })
	leave()
	stayed, left := staying.wait(), going.wait()
	others.await(t, others.total()+10)
	if want := map[string]int{"200": all / 2}; !maps.Equal(stayed, want) {
		t.Errorf("those that stayed got %v, want %v", stayed, want)
	}
	suite.Eventually(t, "no call waits", func() bool { return metric(t, limits, "sluice_delayed_responses_pending") == 0 })
	others.stop(t)
	if n := metric(t, limits, "sluice_grpc_connections_closed_total"); n != 0 {
		t.Errorf("%v connections were ended, want none", n)
	}
	t.Logf("%d calls: those that stayed got %v, the others %v; %v cancelled waits; %d answers of others; memory was at most %s",
		all, stayed, left, metric(t, limits, "sluice_delayed_responses_cancelled_total"), others.total(), peak(limits))
}
