package examples_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// llm is a sluice and an Envoy in front of a backend.
type llm struct {
	sluice *sluice.Sluice
	envoy  *envoy.Envoy
}

// startLLM starts a sluice with rules of a path, relative to the root, and an Envoy in front of a
// backend with answers.
func startLLM(t *testing.T, rules string, config object, answers []answer) *llm {
	t.Helper()
	suite.Envoy(t, root)
	bootstrap, err := json.Marshal(config)
	must.OK(t, err)
	s := startSluice(t, sluice.Options{Args: []string{"--config", rules}})
	return &llm{sluice: s, envoy: suite.StartEnvoy(t, root, envoy.Options{
		Bootstrap: bootstrap, Clusters: map[string][]string{"sluice": {s.Addr("grpc")}, "backend": {startBackend(t, answers)}},
		Patient: true, Dir: suite.ShortDir(t),
	})}
}

// start sends a request of the given size or more for the nth answer, and returns the response. The
// caller must close its body.
func (l *llm) start(ctx context.Context, t *testing.T, n, size int) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://%s/%d", l.envoy.Addr("ingress"), n), strings.NewReader(`{"model":"small","prompt":"`+strings.Repeat("a", size)+`"}`))
	must.OK(t, err)
	req.Header.Set("X-User", "alice")
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	resp, err := http.DefaultClient.Do(req)
	must.OK(t, err)
	return resp
}

// ask sends a request like start, reads the response a, and returns its status.
func (l *llm) ask(t *testing.T, n, size int, a answer) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp := l.start(ctx, t, n, size)
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	for received := bufio.NewReader(resp.Body); ; {
		line, err := received.ReadString('\n')
		if errors.Is(err, io.EOF) || a.disconnect && strings.Contains(line, a.events[len(a.events)-1]) {
			return resp.StatusCode
		}
		must.OK(t, err)
	}
}

// charged returns the number of tokens charged to a rule.
func (l *llm) charged(rule string) func(t *testing.T) int {
	return func(t *testing.T) int {
		t.Helper()
		return int(suite.Metrics(t, l.sluice).Sum("ratelimit_service_rate_limit_total_hits", `rule="`+rule+`"`))
	}
}

// settled returns a function that returns the number of tokens charged to a counter, or -1 while
// hits are reserved.
func (l *llm) settled(domain, descriptor string) func(t *testing.T) int {
	read := func(t *testing.T) (used, held int) {
		t.Helper()
		var page struct {
			Counters []struct {
				Used int
				Held struct{ Hits int }
			}
		}
		must.OK(t, json.Unmarshal(suite.Get(t, "http://"+l.sluice.Addr("debug")+"/counters?domain="+domain+"&descriptor="+descriptor), &page))
		if len(page.Counters) != 1 {
			return 0, -1
		}
		return page.Counters[0].Used, page.Counters[0].Held.Hits
	}
	return func(t *testing.T) int {
		t.Helper()
		if _, held := read(t); held != 0 {
			return -1
		}
		used, _ := read(t) // again: sluice reads used hits, which include reserved ones, before it reads the leases
		return used
	}
}

// awaitCharge waits until the charged tokens reach the given number, and checks that they do not
// exceed it.
func awaitCharge(t *testing.T, name string, want int, charged func(t *testing.T) int) {
	t.Helper()
	got := 0
	suite.Eventually(t, fmt.Sprintf("%s: %d tokens are charged", name, want), func() bool {
		got = charged(t)
		return got >= want
	})
	if got != want {
		t.Errorf("%s: %d tokens are charged, want %d", name, got, want)
	}
}

// test sends a request for each answer and checks that exactly the reported tokens are charged. It
// returns their sum. A stream without usage costs unreported.
func (l *llm) test(t *testing.T, answers []answer, unreported int, charged ...func(t *testing.T) int) (want int) {
	t.Helper()
	for n, a := range answers {
		if status := l.ask(t, n, 0, a); status != a.wantStatus() {
			t.Errorf("%s: status %d, want %d", a.name, status, a.wantStatus())
		}
		if want += a.tokens; a.unreported {
			want += unreported
		}
		for _, charged := range charged {
			awaitCharge(t, a.name, want, charged)
		}
	}
	return want
}

// TestLLMTokensAreCharged checks that the tokens that a backend reports are charged, and nothing
// else. Then it exceeds the limit.
func TestLLMTokensAreCharged(t *testing.T) {
	t.Parallel()
	answers := append(slices.Clone(openAI), answer{name: "an expensive one", contentType: "text/event-stream", events: []string{`{"choices":[],"usage":{"total_tokens":40000}}`, `[DONE]`}, tokens: 40000})
	l := startLLM(t, "examples/llm-tokens/rules.yaml", example(t, "llm-tokens", "envoy.yaml"), answers)
	want := l.test(t, answers, 1000, l.charged("user"))
	if status := l.ask(t, 0, 0, answers[0]); status != http.StatusTooManyRequests {
		t.Errorf("after %d tokens: status %d, want 429", want, status)
	}
}

// TestLLMReservationsAreSettled does the same with reservations. A stream without usage is charged
// its reservation, as is any response that the backend may have worked on. Other failures are free.
func TestLLMReservationsAreSettled(t *testing.T) {
	t.Parallel()
	window.AwaitHour(t)
	answers := slices.Concat(openAI, failures, unclear)
	l := startLLM(t, "examples/llm-reservation/rules.yaml", example(t, "llm-reservation", "envoy.yaml"), answers)
	l.test(t, answers, 5000, l.settled("llm-reservation", "user=alice"))
}

// TestLLMSnippets does the same with the configuration that `sluice envoy snippet` prints, for its
// own rules and for reservations.
func TestLLMSnippets(t *testing.T) {
	t.Parallel()
	suite.Envoy(t, root)
	for _, tt := range []struct {
		api     string
		answers []answer
	}{
		{"openai", slices.Concat(openAI, responses)}, {"anthropic", anthropic},
	} {
		t.Run(tt.api, func(t *testing.T) {
			t.Parallel()
			rules, config := snippet(t, "--llm", tt.api)
			l := startLLM(t, suite.WriteRules(t, rules), config, tt.answers)
			l.test(t, tt.answers, 1000, l.charged("user"), l.charged("model"))
		})
		t.Run(tt.api+" with reservations", func(t *testing.T) {
			t.Parallel()
			const rules = "examples/llm-reservation/rules.yaml"
			_, config := snippet(t, "--llm", tt.api, "-c", rules)
			window.AwaitHour(t)
			l := startLLM(t, rules, config, tt.answers)
			l.test(t, tt.answers, 5000, l.settled("llm-reservation", "user=alice"))
		})
	}
}

// pageRules returns the path of the rules of docs/llm.md, with the given response to denials, and
// their configuration of Envoy. The bucket of 20000 tokens an hour would drain during a test, so it
// has a year instead.
func pageRules(t *testing.T, denial string) (path string, config object) {
	t.Helper()
	suite.Envoy(t, root)
	page, err := os.ReadFile(filepath.Join(root, "docs", "llm.md"))
	must.OK(t, err)
	_, rules, _ := strings.Cut(string(page), "```yaml\n# llm.yaml\n")
	rules, _, found := strings.Cut(rules, "```")
	if !found || strings.Count(rules, "unit: hour") != 1 {
		t.Fatal("docs/llm.md does not contain llm.yaml with one limit per hour")
	}
	rules = strings.Replace(rules, "unit: hour", "unit: year", 1)
	path = suite.WriteRules(t, rules+"denied_response: "+denial+"\n")
	_, config = snippet(t, "--llm", "openai", "-c", path)
	return path, config
}

// TestLLMPageRules runs the rules of docs/llm.md: tokens are reserved and charged, and a user has
// at most three responses at the same time. A denial costs nothing, whatever its body.
func TestLLMPageRules(t *testing.T) {
	t.Parallel()
	for name, denial := range map[string]string{
		"JSON": "openai", "streamed": `{ content_type: text/event-stream, body: "data: {}\n\n" }`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPageRules(t, denial)
		})
	}
}

func testPageRules(t *testing.T, denial string) {
	t.Helper()
	path, config := pageRules(t, denial)
	window.AwaitHour(t)
	endless := answer{contentType: "text/event-stream", events: []string{`{}`}, disconnect: true}
	l := startLLM(t, path, config, []answer{openAI[0], endless})
	l.test(t, openAI[:1], 0, l.charged("model"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if status, _ := get(ctx, t, "http://"+l.envoy.Addr("ingress")+"/0"); status != http.StatusOK { // without a model
		t.Errorf("a request without a model has the status %d", status)
	}
	awaitCharge(t, "a request without a model", openAI[0].tokens, l.settled("llm", "model=unknown"))
	for range 3 {
		resp := l.start(ctx, t, 1, 0)
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("a concurrent response has the status %d", resp.StatusCode)
		}
	}
	denied := l.start(ctx, t, 0, 0)
	defer denied.Body.Close()
	if after := denied.Header.Get("Retry-After"); denied.StatusCode != http.StatusTooManyRequests || after != "1" {
		t.Errorf("a fourth concurrent response has the status %d and retry-after %q, want 429 and 1", denied.StatusCode, after)
	}
	if n := suite.Metrics(t, l.sluice).Sum("ratelimit_service_rate_limit_over_limit", `rule="streams"`); n != 1 {
		t.Errorf("the limit on streams denied %v responses, want 1", n)
	}
	cancel()
	suite.Eventually(t, "the streams have ended", func() bool { return l.ask(t, 0, 0, openAI[0]) == http.StatusOK })
	awaitCharge(t, "the user's responses", 3*4000+3*openAI[0].tokens, l.settled("llm", "user=alice"))
	awaitCharge(t, "the model's responses", 2*openAI[0].tokens, l.settled("llm", "model=small"))
}

// TestLLMPageCharges sends each kind of response with the rules of docs/llm.md. A stream without usage
// costs the user its reservation, and the model, which has none, 1000 tokens.
func TestLLMPageCharges(t *testing.T) {
	t.Parallel()
	path, config := pageRules(t, "openai")
	answers := slices.Concat(openAI, responses, failures)
	window.AwaitHour(t)
	l := startLLM(t, path, config, answers)
	sum := l.test(t, answers, 1000, l.charged("model"))
	awaitCharge(t, "the user", sum-1000+4000, l.settled("llm", "user=alice"))
}

// TestLLMDisconnects checks what a client is charged that disconnects during a stream: the tokens
// that events have reported, or else its reservation. The last answer shows that nothing else is
// charged.
func TestLLMDisconnects(t *testing.T) {
	t.Parallel()
	suite.Envoy(t, root)
	started := answer{name: "disconnected", contentType: "text/event-stream", disconnect: true, events: []string{`{"type":"message_start","message":{"usage":{"input_tokens":70,"output_tokens":1}}}`}}
	unreported := started
	unreported.unreported, started.tokens = true, 71
	for _, tt := range []struct {
		api, rules string
		answers    []answer
	}{
		{"openai", "", []answer{unreported, openAI[0]}},
		{"openai", "examples/llm-reservation/rules.yaml", []answer{unreported, openAI[0]}},
		{"anthropic", "", []answer{started, anthropic[0]}},
		{"anthropic", "examples/llm-reservation/rules.yaml", []answer{started, anthropic[0]}},
	} {
		t.Run(tt.api+" "+tt.rules, func(t *testing.T) {
			t.Parallel()
			if tt.rules == "" {
				rules, config := snippet(t, "--llm", tt.api)
				l := startLLM(t, suite.WriteRules(t, rules), config, tt.answers)
				l.test(t, tt.answers, 0, l.charged("user"))
				return
			}
			_, config := snippet(t, "--llm", tt.api, "-c", tt.rules)
			window.AwaitHour(t)
			l := startLLM(t, tt.rules, config, tt.answers)
			l.test(t, tt.answers, 5000, l.settled("llm-reservation", "user=alice"))
		})
	}
}

// TestLLMBuffers checks that Envoy rejects complete responses and requests above the listener's
// per_connection_buffer_limit_bytes, but not streamed ones.
func TestLLMBuffers(t *testing.T) {
	t.Parallel()
	suite.Envoy(t, root)
	long := strings.Repeat("a", 2<<20)
	answers := []answer{
		{name: "complete", contentType: "application/json", body: `{"text":"` + long + `","usage":{"total_tokens":5}}`, tokens: 5},
		{name: "streamed", contentType: "text/event-stream", events: slices.Concat(slices.Repeat([]string{`{"text":"` + long[:100_000] + `"}`}, 20), []string{`{"usage":{"total_tokens":6}}`}), tokens: 6},
	}
	rules, config := snippet(t, "--llm", "openai")
	eachObject(config, func(o object) {
		if o["http_filters"] != nil {
			o["delayed_close_timeout"] = "180s" // the client reads the response before it has sent the request
		}
	})
	for _, limited := range []bool{true, false} {
		want := [3]int{http.StatusInternalServerError, http.StatusOK, http.StatusRequestEntityTooLarge}
		if !limited {
			listener, _ := field[list](field[object](config, "static_resources"), "listeners")[0].(object)
			listener["per_connection_buffer_limit_bytes"] = 16 << 20
			want = [3]int{http.StatusOK, http.StatusOK, http.StatusOK}
		}
		l := startLLM(t, suite.WriteRules(t, rules), config, answers)
		if got := [3]int{l.ask(t, 0, 0, answers[0]), l.ask(t, 1, 0, answers[1]), l.ask(t, 1, 2<<20, answers[1])}; got != want {
			t.Errorf("limited %v: a large complete response, a streamed one and a large request: %v, want %v", limited, got, want)
		}
		if !limited {
			suite.Eventually(t, "17 tokens are charged", func() bool { return l.charged("user")(t) == 17 })
		}
	}
}

// TestStreamedCostIsFound checks that the finding streamed-cost is true: without sse_to_metadata a
// streamed response charges nothing, unless json_to_metadata has a default for it.
func TestStreamedCostIsFound(t *testing.T) {
	t.Parallel()
	suite.Envoy(t, root)
	rules, config := snippet(t, "--llm", "openai")
	path := suite.WriteRules(t, rules)
	jsonFilter := object{}
	eachObject(config, func(o object) {
		if o["http_filters"] != nil {
			filters := slices.DeleteFunc(field[list](o, "http_filters"), func(f any) bool { return f.(object)["name"] == "envoy.filters.http.sse_to_metadata" })
			o["http_filters"] = filters
			if f, _ := filters[0].(object); f["name"] == "envoy.filters.http.json_to_metadata" {
				jsonFilter = f
			}
		}
	})
	answers := []answer{{name: "streamed", contentType: "text/event-stream", events: openAI[2].events, unreported: true}, openAI[0]}
	for _, byDefault := range []int{0, 500} {
		if byDefault > 0 {
			responses := field[object](field[object](jsonFilter, "typed_config"), "response_rules")
			rule, _ := field[list](responses, "rules")[0].(object)
			rule["on_error"] = object{"metadata_namespace": "llm", "key": "total_tokens", "value": byDefault}
		}
		text, err := json.Marshal(config)
		must.OK(t, err)
		file := filepath.Join(t.TempDir(), "envoy.json")
		must.OK(t, os.WriteFile(file, text, 0o600))
		out, err := exec.CommandContext(t.Context(), sluiceBinary, "envoy", "check", file, "-c", path).CombinedOutput()
		must.OK(t, err)
		if found := strings.Contains(string(out), "streamed-cost"); found != (byDefault == 0) {
			t.Errorf("default %d: envoy check printed\n%s", byDefault, out)
		}
		l := startLLM(t, path, config, answers)
		l.test(t, answers, byDefault, l.charged("user"))
	}
}

// snippet returns the rules in the output of `sluice envoy snippet`, and a configuration of Envoy
// with the rest, which the real Envoy has validated.
func snippet(t *testing.T, args ...string) (rules string, config object) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), sluiceBinary, append([]string{"envoy", "snippet"}, args...)...)
	cmd.Dir = root
	text, err := cmd.Output()
	must.OK(t, err)
	rules = strings.Join(regexp.MustCompile("(?m)^#   .*\n").FindAllString(string(text), -1), "")
	rules = strings.ReplaceAll("\n"+rules, "\n#   ", "\n")
	filled := strings.NewReplacer("address: CHANGE-ME", "address: 127.0.0.1", "header_name: CHANGE-ME", "header_name: x-user", "# enable_retry", "enable_retry", "# failure_mode", "failure_mode").Replace(string(text))
	var parts object
	must.OK(t, yaml.Unmarshal([]byte(filled), &parts))
	config = example(t, "llm-tokens", "envoy.yaml")
	static := field[object](config, "static_resources")
	static["clusters"] = append(field[list](parts, "clusters"), field[list](static, "clusters")[1])
	eachObject(field[list](static, "listeners")[0], func(o object) {
		if filters := field[list](o, "http_filters"); filters != nil {
			o["http_filters"] = append(field[list](parts, "http_filters"), filters[len(filters)-1])
		}
		if o["domains"] != nil {
			o["request_headers_to_remove"], o["typed_per_filter_config"] = parts["request_headers_to_remove"], parts["typed_per_filter_config"]
		}
	})
	file := filepath.Join(t.TempDir(), "envoy.json")
	bootstrap, err := json.Marshal(config)
	must.OK(t, err)
	must.OK(t, os.WriteFile(file, bootstrap, 0o600))
	must.OK(t, envoy.Validate(t.Context(), suite.Envoy(t, root), file))
	return rules, config
}
