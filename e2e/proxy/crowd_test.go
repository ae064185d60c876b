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

// sized returns what the tier at hand wants: SLUICE_LONG asks for the full size.
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
- { key: held, rate_limit: { unit: second, requests_per_unit: 100, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 20000 } }
`

// witnessListeners have a limit of 0, and differ in what Envoy makes of an error: a
// request that passes, or a 500.
func witnessListeners() []listener {
	routes := limitedBy(`{ generic_key: { descriptor_key: witness, descriptor_value: w } }`)
	return []listener{
		{name: "open", rateLimit: []string{"failure_mode_deny: false"}, routes: routes},
		{name: "closed", rateLimit: []string{"failure_mode_deny: true"}, routes: routes},
	}
}

// witness is clients of Envoy that have nothing to do with what others send.
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

// await returns when there were so many answers.
func (w witness) await(t *testing.T, answers int) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("%d answers of others", answers), func() bool { return w.total() >= answers })
}

// stop ends the witnesses, all of whose answers must have been 429.
func (w witness) stop(t *testing.T) {
	t.Helper()
	for name, l := range w.loads {
		if got := l.stop(); !slices.Equal(slices.Collect(maps.Keys(got)), []string{"429"}) {
			t.Errorf("%s: the answers of others are %v, want 429 alone", name, got)
		}
	}
}

// TestClientsThatGoAwayChangeNothing has many clients wait for held replies at once, each
// with a long header in its call; half of them go away.
func TestClientsThatGoAwayChangeNothing(t *testing.T) {
	t.Parallel()
	limits := startPlain(t, nil, "--config", writeRules(t, crowdRules))
	p := startProxy(t, append(witnessListeners(), listener{
		rateLimit: []string{"failure_mode_deny: false"}, routes: limitedBy(`{ generic_key: { descriptor_key: held, descriptor_value: h } }`),
		tracing: tracer("opentelemetry", openTelemetry),
	}), "", limits)
	others := startWitness(t, p, 1)
	long := header("Traceparent", traceparent, "Tracestate", strings.Repeat("s", 59*kib))
	all := sized(400, 1200)
	leaving, leave := context.WithCancel(t.Context())
	defer leave()
	var (
		wg           sync.WaitGroup
		mu           sync.Mutex
		stayed, left = map[string]int{}, map[string]int{}
	)
	for i := range all {
		wg.Go(func() {
			ctx, counts := t.Context(), stayed
			if i%2 == 1 {
				ctx, counts = leaving, left
			}
			status, err := p.sent(ctx, "ingress", ask{headers: long})
			got := strconv.Itoa(status)
			if err != nil {
				got = "error"
				if ctx.Err() != nil {
					got = "left"
				}
			}
			mu.Lock()
			counts[got]++
			mu.Unlock()
		})
	}
	suite.Eventually(t, "many calls wait", func() bool { return metric(t, limits, "sluice_waiting_calls") >= float64(all/4) })
	leave()
	wg.Wait()
	others.await(t, others.total()+10)
	if want := map[string]int{"200": all / 2}; !maps.Equal(stayed, want) {
		t.Errorf("those that stayed got %v, want %v", stayed, want)
	}
	suite.Eventually(t, "no call waits", func() bool { return metric(t, limits, "sluice_waiting_calls") == 0 })
	others.stop(t)
	if n := metric(t, limits, "sluice_ended_connections_total"); n != 0 {
		t.Errorf("%v connections were ended, want none", n)
	}
	t.Logf("%d calls: those that stayed got %v, the others %v; %v cancelled waits; %d answers of others; memory was at most %d MiB",
		all, stayed, left, metric(t, limits, "sluice_cancelled_waits_total"), others.total(), peak(t, limits)>>20)
}
