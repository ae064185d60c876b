package examples_test

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// answer is a response of an LLM's API. A streamed one consists of the data of its events.
type answer struct {
	name        string
	status      int // 0 for 200; -1 if the backend resets the request, to which Envoy responds with 503
	contentType string
	events      []string
	body        string
	tokens      int
	unreported  bool // whether a stream does not report its tokens
	// disconnect is true if the client disconnects when it has received the events; the stream does
	// not end.
	disconnect bool
}

// wantStatus returns the status that the client receives.
func (a *answer) wantStatus() int {
	if a.status < 0 {
		return http.StatusServiceUnavailable
	}
	return cmp.Or(a.status, http.StatusOK)
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
	{name: "streamed without usage", contentType: "text/event-stream", events: []string{`{"choices":[{"delta":{"content":"a"}}]}`, `[DONE]`}, unreported: true},
	{name: "an error", contentType: "application/json", body: `{"error":{"message":"overloaded"}}`},
}

// responses are responses of OpenAI's second API, Responses. The last event contains the complete
// response.
var responses = []answer{
	{name: "complete", contentType: "application/json", body: `{"object":"response","usage":{"input_tokens":5,"output_tokens":6,"total_tokens":11}}`, tokens: 11},
	{name: "streamed", contentType: "text/event-stream", events: []string{
		`{"type":"response.created","response":{"usage":null}}`, `{"type":"response.output_text.delta","delta":"a"}`,
		`{"type":"response.completed","response":{"output":"` + strings.Repeat("long ", 20_000) + `","usage":{"total_tokens":5000}}}`,
	}, tokens: 5000},
}

// anthropic are responses of Anthropic's API, Messages. The output tokens of events are cumulative.
var anthropic = []answer{
	{name: "complete", contentType: "application/json", body: `{"type":"message","usage":{"input_tokens":12,"cache_creation_input_tokens":null,"cache_read_input_tokens":9000,"output_tokens":34}}`, tokens: 46},
	{name: "streamed", contentType: "text/event-stream; charset=utf-8", events: []string{
		`{"type":"message_start","message":{"usage":{"input_tokens":1000,"cache_creation_input_tokens":200,"cache_read_input_tokens":9000,"output_tokens":1}}}`,
		`{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`,
		`{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":20}}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":345}}`, `{"type":"message_stop"}`,
	}, tokens: 1545},
	{name: "streamed with tools", contentType: "text/event-stream", events: []string{
		`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`,
		`{"type":"message_delta","usage":{"input_tokens":2000,"cache_creation_input_tokens":0,"output_tokens":500}}`, `{"type":"message_stop"}`,
	}, tokens: 2500},
	{name: "an error", contentType: "application/json", body: `{"type":"error","error":{"type":"overloaded_error"}}`},
	{name: "an error after the start", contentType: "text/event-stream", events: []string{
		`{"type":"message_start","message":{"usage":{"input_tokens":70,"output_tokens":1}}}`, `{"type":"error"}`,
	}, tokens: 71},
}

// failures are endings without a cost.
var failures = []answer{
	{name: "a rejected request", status: 429, contentType: "application/json", body: `{"error":{"message":"too fast"}}`},
	{name: "an HTML error", status: 502, contentType: "text/html", body: `<html>`},
	{name: "an empty error", status: 500, contentType: "text/plain"},
	{name: "no content", status: 204, contentType: "text/plain"},
	{name: "a reset", status: -1},
}

// unclear are endings without a cost of requests that the backend may have worked on.
var unclear = []answer{
	{name: "text", contentType: "text/plain", body: "hello", unreported: true},
	{name: "cut JSON", contentType: "application/json", body: `{"choices":[`, unreported: true},
}

// write sends the answer, compressed if the client accepts that. Events are divided among several
// writes.
func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", a.contentType)
	switch {
	case a.status < 0:
		panic(http.ErrAbortHandler)
	case a.status > 0:
		w.WriteHeader(a.status)
	}
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
	if a.disconnect {
		<-r.Context().Done()
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
