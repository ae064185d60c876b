//go:build more

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestClientInputCannotBypassLimits varies everything that a client of Envoy controls, from one
// byte to sizes that Envoy rejects. No call may fail, because Envoy allows a request on an error:
// the first request passes, the second is denied, and other clients get the same answers as before.
func TestClientInputCannotBypassLimits(t *testing.T) {
	t.Parallel()
	t.Run("default flags", func(t *testing.T) {
		t.Parallel()
		testClientInput(t, nil, "")
	})
	// With all reporting enabled, a reply is as long as its request.
	t.Run("all reporting enabled over TLS", func(t *testing.T) {
		t.Parallel()
		certificates := startRotation(t, envoyName)
		args := append(certificates.flags(), "--dynamic-metadata", "--decision-metadata", "--denied-by",
			"--LIMIT_RESPONSE_HEADERS_ENABLED", "--ratelimit-headers=structured", "--tracing")
		testClientInput(t, args, certificates.cluster(t, sluiceName))
	})
}

func testClientInput(t *testing.T, args []string, cluster string) {
	t.Helper()
	limits := startPlain(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + unusedAddr}, append(args, "--config", suite.WriteRules(t, inputRules()))...)
	p := startProxy(t, append(inputListeners(), bystanderListeners()...), cluster, limits)
	window.AwaitHour(t)
	others := startBystanders(t, p, 1)
	for i, w := range inputs {
		var wrong []string
		longest, c := 0, string(rune('a'+i)) // inputs have distinct values
		for _, n := range w.sizes() {
			first, err := p.send(t.Context(), w.name, w.request(c, n))
			second, again := p.send(t.Context(), w.name, w.request(c, n))
			switch {
			case first == http.StatusOK && second == http.StatusTooManyRequests:
				longest = n
			case n > w.maxBytes && envoyRejects(first, err) && envoyRejects(second, again):
			default:
				wrong = append(wrong, fmt.Sprintf("%d bytes: %d, %d, %.100v", n, first, second, errors.Join(err, again)))
			}
		}
		t.Logf("%s: %d sizes, up to %d bytes", w.name, len(w.sizes()), longest)
		if len(wrong) > 0 {
			t.Errorf("%s: want the first request admitted and the second denied; that is false for %[3]d of %[2]d sizes: %[4]s",
				w.name, len(w.sizes()), len(wrong), strings.Join(wrong, "; "))
		}
	}
	others.stop(t)
	checkNoErrors(t, limits)
	t.Logf("other clients got %d answers", others.total())
}

// envoyRejects reports whether Envoy itself rejected a request. Over HTTP/2 it may reset the stream
// instead of answering.
func envoyRejects(status int, err error) bool {
	return err != nil && strings.Contains(err.Error(), "stream error") ||
		status == http.StatusRequestHeaderFieldsTooLarge || status == http.StatusBadRequest
}

// sizes returns the sizes to try, from one byte to more than Envoy accepts, with more around the
// bounds.
func (w input) sizes() []int {
	var all []int
	for _, n := range []int{
		1, 2, 127, 128, kib, 4*kib - 1, 4 * kib, 8*kib - 200, 15 * kib, 16*kib - 300, 16*kib - 1, 16 * kib, 17 * kib,
		22 * kib, 30 * kib, 32 * kib, 33 * kib, 40 * kib, 48 * kib, 50 * kib, 56 * kib,
	} {
		if n < w.maxBytes {
			all = append(all, n)
		}
	}
	all = append(all, w.maxBytes)
	if !w.skipsCall {
		for n := w.maxBytes + 97; n <= 61*kib; n += 97 {
			all = append(all, n)
		}
	}
	return all
}

// inputRules allow one request per year for each value of each input.
func inputRules() string {
	const once = "rate_limit: { unit: year, requests_per_unit: 1 }"
	rules := &strings.Builder{}
	rules.WriteString("domain: d\ndescriptors:\n- { key: witness, rate_limit: { unit: year, requests_per_unit: 0 } }\n- { key: user, " + once + " }\n- { key: remote_address, " + once + " }\n")
	for i := range mostDescriptors {
		fmt.Fprintf(rules, "- { key: u%d, %s }\n", i, once)
	}
	for i := range mostEntries {
		indent := strings.Repeat("  ", i)
		fmt.Fprintf(rules, "%s- key: e%d\n", indent, i)
		if i == mostEntries-1 {
			fmt.Fprintf(rules, "%s  %s\n", indent, once)
		} else {
			fmt.Fprintf(rules, "%s  descriptors:\n", indent)
		}
	}
	return rules.String()
}

// TestLongHeadersNeedHigherLimits configures Envoy to accept longer headers than by default. Only
// calls beyond a bound of sluice fail. With higher bounds they are limited.
func TestLongHeadersNeedHigherLimits(t *testing.T) {
	t.Parallel()
	longHeaders := "{ max_request_headers_kb: 500 }"
	listeners := append(bystanderListeners(),
		listener{
			name: "tracestate", rateLimit: []string{"failure_mode_deny: false"}, manager: longHeaders,
			routes: limitedBy(byHeader("x-user", "user")), tracing: tracer("opentelemetry", openTelemetry),
		},
		listener{name: "descriptors", rateLimit: []string{"failure_mode_deny: false"}, manager: longHeaders, routes: repeated(25)})
	for name, tt := range map[string]struct {
		args     []string
		rejected map[string]float64
	}{
		"defaults": {rejected: map[string]float64{"headers": 2, "message": 2}},
		"higher":   {args: []string{"--max-header-size", "512KiB", "--max-message", "16MiB"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := startPlain(t, nil, append(tt.args, "--config", suite.WriteRules(t, inputRules()))...)
			p := startProxy(t, listeners, "", limits)
			window.AwaitHour(t)
			others := startBystanders(t, p, 1)
			second := http.StatusTooManyRequests
			if tt.rejected != nil {
				second = http.StatusOK
			}
			const n = 200 * kib
			for name, a := range map[string]clientRequest{
				"tracestate":  {headers: header("X-User", "al", "Traceparent", traceparent, "Tracestate", strings.Repeat("s", n))},
				"descriptors": userHeader("u", n),
			} {
				if first, then := p.mustSend(t, name, a), p.mustSend(t, name, a); first != http.StatusOK || then != second {
					t.Errorf("%s: two requests of %d bytes: %d, %d, want 200, %d", name, n, first, then, second)
				}
			}
			others.await(t, others.total()+10)
			others.stop(t)
			for _, reason := range []string{"headers", "message"} {
				if got := metric(t, limits, "sluice_rejected_requests_total", fmt.Sprintf("reason=%q", reason)); got != tt.rejected[reason] {
					t.Errorf("%v requests were rejected for their %s, want %v; log of sluice:\n%s", got, reason, tt.rejected[reason], limits.Log())
				}
			}
			if n := metric(t, limits, "sluice_grpc_connections_closed_total"); n != 0 {
				t.Errorf("%v connections were closed, want none", n)
			}
		})
	}
}

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

// plainBinary builds sluice without the race detector, which multiplies its memory.
var plainBinary = sync.OnceValues(func() (string, error) {
	if !raceEnabled() {
		return sluiceBinary, nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(sluiceBinary), "plain")
	if err != nil {
		return "", err
	}
	return sluice.Build(context.Background(), root, dir)
})

func startPlain(t *testing.T, env []string, args ...string) *sluice.Sluice {
	t.Helper()
	binary, err := plainBinary()
	must.OK(t, err)
	return startSluice(t, sluice.Options{Binary: binary, Args: args, Env: env})
}

// checkNoErrors fails the test if sluice answered a request without a decision.
func checkNoErrors(t *testing.T, limits *sluice.Sluice) {
	t.Helper()
	for _, name := range []string{"sluice_rejected_requests_total", "sluice_grpc_connections_closed_total", "ratelimit_service_call_should_rate_limit_service_error"} {
		if n := metric(t, limits, name); n != 0 {
			t.Errorf("%s is %v, want 0; log of sluice:\n%s", name, n, limits.Log())
		}
	}
}

// unusedAddr is an address without a listener.
const unusedAddr = "127.0.0.1:1"
