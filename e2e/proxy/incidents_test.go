//go:build more

package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/store/storetest"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// stateOf returns the state of sluice.
func stateOf(t *testing.T, s *sluice.Sluice) (state live.State) {
	t.Helper()
	must.OK(t, json.Unmarshal(suite.Get(t, "http://"+s.Addr("debug")+"/api/v1/state"), &state))
	return state
}

// awaitCondition waits until the state has a condition with the given code, and returns it. provoke
// is called before each reading; it may be nil.
func awaitCondition(t *testing.T, s *sluice.Sluice, code telemetry.Code, provoke func()) (c telemetry.Condition) {
	t.Helper()
	began := time.Now()
	suite.Eventually(t, "the condition "+string(code), func() bool {
		if provoke != nil {
			provoke()
		}
		all := stateOf(t, s).Conditions
		i := slices.IndexFunc(all, func(c telemetry.Condition) bool { return c.Code == code })
		if i >= 0 {
			c = all[i]
		}
		return i >= 0
	})
	t.Logf("the state has the condition %s after %v: %v %q", code, time.Since(began).Round(time.Millisecond), c.Fields, c.Lines)
	return c
}

// expectCause waits until the state has a condition, and expects the condition's text and the other
// parts on the first screen of `sluice top --once`: 24 lines of 80 columns, in which text is
// wrapped.
func expectCause(t *testing.T, s *sluice.Sluice, code telemetry.Code, provoke func(), parts ...string) telemetry.Condition {
	t.Helper()
	c := awaitCondition(t, s, code, provoke)
	packed := func(text string) string { return strings.Join(strings.Fields(text), "") }
	lines := strings.Split(top(t, s), "\n")
	screen := strings.Join(lines[:min(len(lines), 24)], "\n")
	for _, part := range append(parts, c.Text) {
		if !strings.Contains(packed(screen), packed(part)) {
			t.Errorf("the first screen lacks %q:\n%s", part, screen)
		}
	}
	return c
}

// userRoutes limit each user.
const userRoutes = `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`

// streamRoutes returns routes with rate_limits of RateLimitPerRoute.
func streamRoutes(rateLimits string) string {
	return `[{ match: { prefix: / }, route: {}, typed_per_filter_config: { envoy.filters.http.ratelimit: {
		"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, rate_limits: ` + rateLimits + ` } } }]`
}

// tokenRoutes check a user's budget first, and charge the tokens in dynamic metadata at the end.
var tokenRoutes = streamRoutes(`[
	{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }], hits_addend: { number: 0 } },
	{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }], hits_addend: { format: "%DYNAMIC_METADATA(llm:total_tokens)%" }, apply_on_stream_done: true }]`)

// tokensFromJSON reads the tokens of complete responses, and tokensFromEvents those of streams.
const (
	tokensFromJSON = `{ name: envoy.filters.http.json_to_metadata, typed_config: {
		"@type": type.googleapis.com/envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata,
		response_rules: { rules: [{ selectors: [{ key: usage }, { key: total_tokens }], on_present: { metadata_namespace: llm, key: total_tokens, type: NUMBER } }] } } }`
	tokensFromEvents = `{ name: envoy.filters.http.sse_to_metadata, typed_config: {
		"@type": type.googleapis.com/envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata,
		response_rules: { content_parser: { name: envoy.content_parsers.json, typed_config: {
			"@type": type.googleapis.com/envoy.extensions.content_parsers.json.v3.JsonContentParser,
			rules: [{ rule: { selectors: [{ key: usage }, { key: total_tokens }], on_present: { metadata_namespace: llm, key: total_tokens, type: NUMBER } } }] } } } } }`
)

const tokenRules = `
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 10000, algorithm: token_bucket, count_refused: true }
`

// startStreaming is startProxy with a backend that streams responses of 400 tokens as events.
func startStreaming(t *testing.T, l listener, limits *sluice.Sluice) *proxy {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{`{"choices":[{"delta":{"content":"hi"}}]}`, `{"choices":[],"usage":{"total_tokens":400}}`, "[DONE]"} {
			_, _ = io.WriteString(w, "data: "+event+"\n\n") // Envoy may have disconnected
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(backend.Close)
	e := suite.StartEnvoy(t, root, envoy.Options{
		Bootstrap: bootstrap(t, []listener{l}, ""),
		Clusters:  map[string][]string{"sluice": {limits.Addr("grpc")}, "backend": {strings.TrimPrefix(backend.URL, "http://")}},
	})
	client := &http.Client{Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	return &proxy{Envoy: e, ingress: "ingress", client: client}
}

// The tests of incidents cause common problems behind an Envoy, and check that the state and the
// first screen of `sluice top --once` name each. TestTopShowsTheCause and TestTopShowsFloodingUser
// contain the others.

// TestIncidentExpiredCertificate has a sluice whose certificate Envoy does not accept.
func TestIncidentExpiredCertificate(t *testing.T) {
	t.Parallel()
	r := startRotation(t, envoyName)
	pair, err := r.signer.Issue(testcert.Leaf{Names: []string{sluiceName}, Expires: time.Now().Add(-time.Hour)})
	must.OK(t, err)
	if _, err := testcert.Mount(r.sluice, pair, slices.Concat(r.last.PEM, r.signer.PEM, r.next.PEM)); err != nil {
		t.Fatal(err)
	}
	limits := startSluice(t, sluice.Options{Args: append(r.flags(), "--config", suite.WriteRules(t, rulesWithLimit(5)))})
	p := startProxy(t, []listener{{routes: userRoutes}}, r.cluster(t, sluiceName), limits)
	if got := p.get(t, "/", "x-user: al"); got.status != http.StatusInternalServerError {
		t.Errorf("status %d, want 500: Envoy does not accept the certificate", got.status)
	}
	expectCause(t, limits, telemetry.CertificateExpired, nil)
}

// TestIncidentMissingCosts has a backend that streams its responses, first behind a filter that reads complete
// responses only, then behind one that reads events.
func TestIncidentMissingCosts(t *testing.T) {
	t.Parallel()
	limits := startSluice(t, sluice.Options{Args: []string{"--config", suite.WriteRules(t, tokenRules)}})
	broken := startStreaming(t, listener{before: "[" + tokensFromJSON + "]", routes: tokenRoutes}, limits)
	for range 20 {
		if got := broken.get(t, "/", "x-user: al"); got.status != http.StatusOK {
			t.Fatalf("status %d, want 200", got.status)
		}
	}
	c := expectCause(t, limits, telemetry.CostsMissing, nil, "rule=user")
	if n := c.Fields["requests"]; n != 20.0 || c.Fields["charged"] != 0.0 || !strings.Contains(fmt.Sprint(c.Fields["source"]), "rules.yaml:4:") {
		t.Errorf("the fields are %v, want 20 requests, none charged, and the position of the rule", c.Fields)
	}
	if n := metric(t, limits, "sluice_costs_due_total", `rule="user"`); n != 20 {
		t.Errorf("the metric counts %v requests, want 20", n)
	}
	fixed := startStreaming(t, listener{before: "[" + tokensFromJSON + "," + tokensFromEvents + "]", routes: tokenRoutes}, limits)
	fixed.get(t, "/", "x-user: al")
	suite.Eventually(t, "the condition ends with the first charge", func() bool { return !hasCondition(t, limits, telemetry.CostsMissing) })
	if n := metric(t, limits, "ratelimit_service_rate_limit_total_hits", `rule="user"`); n != 400 {
		t.Errorf("%v tokens were charged, want 400", n)
	}
}

// TestIncidentMissingCostsOfHolders has requests that also hold a permit. Costs are missing once
// enough permits were returned.
func TestIncidentMissingCostsOfHolders(t *testing.T) {
	t.Parallel()
	const streams = "{ actions: [{ request_headers: { header_name: x-user, descriptor_key: streams } }]"
	limits := startSluice(t, sluice.Options{Args: []string{"--config", suite.WriteRules(t, tokenRules+
		"  - { key: streams, rate_limit: { name: streams, unit: hour, requests_per_unit: 100, algorithm: concurrency } }\n")}})
	p := startStreaming(t, listener{
		before: "[" + tokensFromJSON + "]",
		routes: strings.TrimSuffix(tokenRoutes, "] } } }]") + ", " + streams + ` }, ` + streams +
			`, hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%", is_negative_hits: true }, apply_on_stream_done: true }] } } }]`,
	}, limits)
	for range 20 {
		p.get(t, "/", "x-user: al")
	}
	if c := expectCause(t, limits, telemetry.CostsMissing, nil, "rule=user"); c.Fields["requests"] != 20.0 {
		t.Errorf("the fields are %v, want 20 requests", c.Fields)
	}
}

// TestIncidentLeasesNotReturned has routes that acquire permits and never return them.
func TestIncidentLeasesNotReturned(t *testing.T) {
	t.Parallel()
	p, limits := startSetup(t, setup{
		rules:    "domain: d\ndescriptors:\n  - { key: user, rate_limit: { unit: second, requests_per_unit: 1000, algorithm: concurrency, name: streams } }",
		listener: listener{routes: streamRoutes("[{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]")},
	})
	c := expectCause(t, limits, telemetry.LeasesNotReturned, func() { p.get(t, "/", "x-user: al") }, "rule=user")
	if c.Fields["returned"] != 0.0 {
		t.Errorf("the fields are %v, want 0 returned", c.Fields)
	}
}

// TestIncidentRequestsWithoutDescriptors has another client than Envoy, which never sends such
// requests.
func TestIncidentRequestsWithoutDescriptors(t *testing.T) {
	t.Parallel()
	limits := startSluice(t, sluice.Options{Args: []string{"--config", suite.WriteRules(t, rulesWithLimit(5))}})
	response, err := http.Post("http://"+limits.Addr("http")+"/json", "application/json", strings.NewReader(`{"domain":"d"}`))
	must.OK(t, err)
	must.OK(t, response.Body.Close())
	c := expectCause(t, limits, telemetry.RequestsWithoutDescriptors, nil)
	if c.Fields["count"] != 1.0 {
		t.Errorf("the fields are %v, want a count of 1", c.Fields)
	}
}

// TestIncidentBadTableRow changes a row of a table's file so that it has no number.
func TestIncidentBadTableRow(t *testing.T) {
	t.Parallel()
	rows := filepath.Join(t.TempDir(), "customers.csv")
	must.OK(t, os.WriteFile(rows, []byte("user,requests_per_unit\nal,7\nbo,8\n"), 0o600))
	p, limits := startSetup(t, setup{
		rules:    "domain: d\ndescriptors:\n  - { key: user, rate_limit: { unit: hour, requests_per_unit: 5, table: customers } }",
		args:     []string{"--table", "customers=" + rows},
		listener: listener{routes: userRoutes},
	})
	suite.Replace(t, rows, "user,requests_per_unit\nal,7\nbo,many\n")
	expectCause(t, limits, telemetry.TableRejected, nil, "customers.csv:3", `"many"`)
	if got := p.get(t, "/", "x-user: al"); !strings.HasPrefix(got.get("X-Ratelimit-Limit"), "7,") {
		t.Errorf("the limit is %q, want that of the previous rows, 7", got.get("X-Ratelimit-Limit"))
	}
	suite.Replace(t, rows, "user,requests_per_unit\nal,7\nbo,9\n")
	suite.Eventually(t, "the condition ends with valid rows", func() bool { return !hasCondition(t, limits, telemetry.TableRejected) })
}

// TestIncidentStoreNeverReached starts with the address of a store that runs only later.
func TestIncidentStoreNeverReached(t *testing.T) {
	t.Parallel()
	store := storetest.Start(t)
	store.Kill()
	p, limits := startSetup(t, setup{
		rules: rulesWithLimit(5), args: []string{"--store", "redis://" + store.Addr}, listener: listener{routes: userRoutes},
	})
	p.get(t, "/", "x-user: al")
	expectCause(t, limits, telemetry.StoreNotReached, nil, store.Addr, "connection refused")
	store.Run()
	suite.Eventually(t, "the condition ends", func() bool { return !hasCondition(t, limits, telemetry.StoreNotReached) })
}

// TestIncidentFullMemory has more users than counters fit into memory.
func TestIncidentFullMemory(t *testing.T) {
	t.Parallel()
	p, limits := startSetup(t, setup{
		rules: rulesWithLimit(5), args: []string{"--counter-memory", "16KiB"}, listener: listener{routes: userRoutes},
	})
	user := 0
	expectCause(t, limits, telemetry.MemoryFull, func() {
		for range 200 {
			user++
			p.get(t, "/", fmt.Sprintf("x-user: user-%d", user))
		}
	})
}

// TestIncidentFloodingClient has a client that floods while its values are hidden. After --unmask,
// the first row of denied keys names it.
func TestIncidentFloodingClient(t *testing.T) {
	t.Parallel()
	p, limits := startSetup(t, setup{rules: rulesWithLimit(1), listener: listener{routes: userRoutes}})
	window.AwaitHour(t)
	flood := func() {
		for i := range 40 {
			p.get(t, "/", fmt.Sprintf("x-user: user-%d", i))
			p.get(t, "/", "x-user: flooder")
		}
	}
	worst := func(args ...string) string {
		lines := strings.Split(top(t, limits, args...), "\n")
		lines = lines[:min(len(lines), 24)]
		head := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "DENIED/S  SHARE") })
		if head < 0 || head+1 == len(lines) {
			t.Fatalf("the first screen has no denied key:\n%s", strings.Join(lines, "\n"))
		}
		return lines[head+1]
	}
	flood()
	if first := worst("--unmask", "10m"); !strings.Contains(first, "  #") || strings.Contains(first, "flooder") {
		t.Errorf("the first key is %q, want the hash of the flooder: values of earlier requests are not kept", first)
	}
	began, first := time.Now(), ""
	suite.Eventually(t, "the first key names the flooder", func() bool {
		flood()
		first = worst()
		return strings.Contains(first, "  user=flooder  d: user 1/hour")
	})
	t.Logf("top names the client after %v: %s", time.Since(began).Round(time.Millisecond), first)
}

// TestSomeReplicasInShadowMode has an Envoy with two replicas, one of which allows every request.
func TestSomeReplicasInShadowMode(t *testing.T) {
	t.Parallel()
	args := []string{"--sharded", "--config", suite.WriteRules(t, rulesWithLimit(0))}
	a, b := startSluice(t, sluice.Options{Args: args}), startSluice(t, sluice.Options{Args: append(args, "--shadow-mode")})
	p := startProxyTo(t, []listener{{routes: userRoutes}}, "", []string{a.Addr("grpc"), b.Addr("grpc")})
	admitted := 0
	for range 20 {
		if p.get(t, "/", "x-user: al").status == http.StatusOK {
			admitted++
		}
	}
	if admitted == 0 || admitted == 20 {
		t.Errorf("%d of 20 requests were admitted, want those that one replica answers", admitted)
	}
	want := telemetry.ShadowModeDiffers.Define().Sentence + " [shadow_mode_differs] " + b.Addr("debug") + ": shadow mode remedy: "
	if printed := top(t, a, "--addr", b.Addr("debug")); !strings.Contains(strings.Join(strings.Fields(printed), " "), want) {
		t.Errorf("top does not name the replica in shadow mode:\n%s", printed)
	}
	if m, n := metric(t, a, "sluice_shadow_mode"), metric(t, b, "sluice_shadow_mode"); m != 0 || n != 1 {
		t.Errorf("the metrics are %v and %v, want 0 and 1", m, n)
	}
}

// hasCondition reports whether the state has a condition with the given code.
func hasCondition(t *testing.T, s *sluice.Sluice, code telemetry.Code) bool {
	t.Helper()
	return slices.ContainsFunc(stateOf(t, s).Conditions, func(c telemetry.Condition) bool { return c.Code == code })
}

// TestGRPCOnHTTPPorts has an Envoy whose cluster points to each HTTP port.
func TestGRPCOnHTTPPorts(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"http", "debug", "metrics"} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			limits := startSluice(t, sluice.Options{Args: []string{"--config", suite.WriteRules(t, rulesWithLimit(5))}})
			p := startProxyTo(t, []listener{{routes: userRoutes}}, "", []string{limits.Addr(port)})
			if got := p.get(t, "/", "x-user: al"); got.status != http.StatusInternalServerError {
				t.Errorf("status %d, want 500: Envoy cannot get a decision", got.status)
			}
			c := expectCause(t, limits, telemetry.GRPCOnHTTPPort, func() { p.get(t, "/", "x-user: al") })
			if c.Fields["listener"] != port || !strings.HasPrefix(fmt.Sprint(c.Fields["peer"]), "127.0.0.1:") {
				t.Errorf("the fields are %v, want the listener %s and the address of Envoy", c.Fields, port)
			}
			if n := metric(t, limits, "sluice_rejected_requests_total", `reason="grpc_on_http_port"`); n == 0 {
				t.Error("the metric does not count the requests")
			}
		})
	}
}

// TestReplicasThatCountSeparately has an Envoy with two replicas, whose client gets twice the
// limit. Replicas with --sharded are no condition, as replicas with a store.
func TestReplicasThatCountSeparately(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flags []string
		alone bool
	}{{nil, true}, {[]string{"--sharded"}, false}} {
		t.Run(strings.Join(tt.flags, ""), func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--config", suite.WriteRules(t, rulesWithLimit(1))}, tt.flags...)
			a, b := startSluice(t, sluice.Options{Args: args}), startSluice(t, sluice.Options{Args: args})
			p := startProxyTo(t, []listener{{routes: userRoutes}}, "", []string{a.Addr("grpc"), b.Addr("grpc")})
			window.AwaitHour(t)
			admitted := 0
			for range 20 {
				if p.get(t, "/", "x-user: al").status == http.StatusOK {
					admitted++
				}
			}
			if admitted != 2 {
				t.Errorf("%d requests were admitted, want 1 by each replica", admitted)
			}
			printed := top(t, a, "--addr", b.Addr("debug"))
			if strings.Contains(printed, "2 replicas count separately: each grants the whole limit") != tt.alone {
				t.Errorf("top reports replicas that count separately: want %t:\n%s", tt.alone, printed)
			}
			if got, gauge := stateOf(t, a).CountsAlone, metric(t, a, "sluice_counts_alone"); got != tt.alone || (gauge == 1) != tt.alone {
				t.Errorf("counts_alone is %t, the metric %v; want %t", got, gauge, tt.alone)
			}
		})
	}
}
