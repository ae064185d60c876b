package examples_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// answer is a response of an LLM's API. A streamed one consists of the data of its events.
type answer struct {
	name        string
	contentType string
	events      []string
	body        string
	tokens      int // charged by the rules of llm-tokens
}

// openAI are responses as OpenAI and compatible servers send them.
var openAI = []answer{
	{name: "complete", contentType: "application/json", body: `{"object":"chat.completion","usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`, tokens: 21},
	{name: "complete with a charset", contentType: "application/json; charset=utf-8", body: `{"usage":{"total_tokens":22}}`, tokens: 22},
	{name: "streamed", contentType: "text/event-stream", events: []string{
		`{"choices":[{"delta":{"role":"assistant","content":""}}],"usage":null}`,
		`{"choices":[{"delta":{"content":"a\n\ndata: {\"usage\":{\"total_tokens\":1}}"}}],"usage":null}`,
		`{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":23,"total_tokens":123}}`, `[DONE]`,
	}, tokens: 123},
	{name: "streamed with a running total", contentType: "text/event-stream; charset=utf-8", events: []string{
		`{"usage":{"total_tokens":10}}`, `{"usage":{"total_tokens":20}}`, `{"usage":{"total_tokens":31}}`, `[DONE]`,
	}, tokens: 31},
	{name: "streamed without usage", contentType: "text/event-stream", events: []string{`{"choices":[{"delta":{"content":"a"}}]}`, `[DONE]`}, tokens: 1000},
	{name: "an error", contentType: "application/json", body: `{"error":{"message":"overloaded"}}`},
}

// write sends the answer, compressed if the client accepts that. Events are divided among several
// writes.
func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", a.contentType)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		compressed := gzip.NewWriter(w)
		defer compressed.Close()
		_, _ = io.WriteString(compressed, a.body)
		for _, e := range a.events {
			_, _ = io.WriteString(compressed, "data: "+e+"\n\n")
		}
		return
	}
	_, _ = io.WriteString(w, a.body)
	for _, e := range a.events {
		text := "data: " + e + "\n\n"
		for half := range strings.SplitAfterSeq(text, `:`) {
			_, _ = io.WriteString(w, half)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// startBackend starts a backend that responds to a request for /n with the nth answer.
func startBackend(t *testing.T, answers []answer) (address string) {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, err := fmt.Sscanf(r.URL.Path, "/%d", &n)
		must.OK(t, err)
		answers[n].write(w, r)
	}))
	t.Cleanup(backend.Close)
	return backend.Listener.Addr().String()
}

// llm is a sluice with the rules of an example and its Envoy, in front of a backend with answers.
type llm struct {
	sluice *sluice.Sluice
	envoy  *envoy.Envoy
}

func startLLM(t *testing.T, name string, answers []answer) *llm {
	t.Helper()
	suite.Envoy(t, root)
	bootstrap, err := json.Marshal(example(t, name, "envoy.yaml"))
	must.OK(t, err)
	s := startSluice(t, sluice.Options{Args: []string{"--config", "examples/" + name + "/rules.yaml"}})
	return &llm{sluice: s, envoy: suite.StartEnvoy(t, root, envoy.Options{
		Bootstrap: bootstrap, Clusters: map[string][]string{"sluice": {s.Addr("grpc")}, "backend": {startBackend(t, answers)}},
		Patient: true, Dir: suite.ShortDir(t),
	})}
}

// ask sends a request for the nth answer and returns the status.
func (l *llm) ask(t *testing.T, n int) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	status, _ := get(ctx, t, fmt.Sprintf("http://%s/%d", l.envoy.Addr("ingress"), n))
	return status
}

// awaitCharge waits until the charged tokens reach the given number, and checks that they do not
// exceed it.
func awaitCharge(t *testing.T, name string, want int, charged func() int) {
	t.Helper()
	got := 0
	suite.Eventually(t, fmt.Sprintf("%s: %d tokens are charged", name, want), func() bool {
		got = charged()
		return got >= want
	})
	if got != want {
		t.Errorf("%s: %d tokens are charged, want %d", name, got, want)
	}
}

// TestLLMTokensAreCharged sends each kind of response through Envoy and checks that the tokens that
// the backend reports are charged, and nothing else. Then it exceeds the limit.
func TestLLMTokensAreCharged(t *testing.T) {
	t.Parallel()
	answers := append(slices.Clone(openAI), answer{name: "an expensive one", contentType: "text/event-stream", events: []string{`{"choices":[],"usage":{"total_tokens":40000}}`, `[DONE]`}, tokens: 40000})
	l := startLLM(t, "llm-tokens", answers)
	want := 0
	for n, a := range answers {
		if status := l.ask(t, n); status != http.StatusOK {
			t.Errorf("%s: status %d", a.name, status)
		}
		want += a.tokens
		awaitCharge(t, a.name, want, func() int {
			return int(suite.Metrics(t, l.sluice).Sum("ratelimit_service_rate_limit_total_hits", `rule="user"`))
		})
	}
	if status := l.ask(t, 0); status != http.StatusTooManyRequests {
		t.Errorf("after %d tokens: status %d, want 429", want, status)
	}
}

// TestLLMReservationsAreSettled does the same with reservations. A stream without usage is charged
// its reservation.
func TestLLMReservationsAreSettled(t *testing.T) {
	t.Parallel()
	window.AwaitHour(t)
	l := startLLM(t, "llm-reservation", openAI)
	want := 0
	for n, a := range openAI {
		if status := l.ask(t, n); status != http.StatusOK {
			t.Errorf("%s: status %d", a.name, status)
		}
		if want += a.tokens; a.tokens == 1000 {
			want += 4000
		}
		awaitCharge(t, a.name, want, func() int {
			var page struct {
				Counters []struct {
					Used int
					Held struct{ Hits int }
				}
			}
			must.OK(t, json.Unmarshal(suite.Get(t, "http://"+l.sluice.Addr("debug")+"/counters?domain=llm-reservation&descriptor=user=alice"), &page))
			if len(page.Counters) != 1 || page.Counters[0].Held.Hits != 0 {
				return -1 // the response has not ended
			}
			return page.Counters[0].Used
		})
	}
}
