package server

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	return send(t, http.MethodGet, url, "")
}

func send(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	code, _, text := servertest.Fetch(t, method, url, body)
	return code, text
}

func TestHTTP(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]}"), Options{})
	request := `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`
	for _, test := range []struct {
		name, method, listener, path, body string
		code                               int
		want                               string
	}{
		{"health", "GET", "http", "/healthcheck", "", 200, "OK"},
		{"json within", "POST", "http", "/json", request, 200, `"overallCode":"OK"`},
		{"json over", "POST", "http", "/json", request, 429, `"OVER_LIMIT"`},
		{"json in snake case", "POST", "http", "/json", `{"domain":"x","hits_addend":1,"descriptors":[{}]}`, 200, `"OK"`},
		{"json empty", "POST", "http", "/json", "", 400, "Bad Request"},
		{"json of another shape", "POST", "http", "/json", `{"domains":"d"}`, 400, "domains"},
		{"json without domain", "POST", "http", "/json", `{"descriptors":[{}]}`, 400, "rate limit domain must not be empty"},
		{"json too large", "POST", "http", "/json", `{"domain":"` + strings.Repeat("d", 1<<17) + `"}`, 413, ""},
		{"else", "GET", "http", "/", "", 404, ""},
		{"no metrics in public", "GET", "http", "/metrics", "", 404, ""},
		{"no profiles in public", "GET", "http", "/debug/pprof/", "", 404, ""},
		{"metrics", "GET", "metrics", "/metrics", "", 200, `ratelimit_service_rate_limit_over_limit{domain="d",key1="k",key2="",limit="",rule="k"} 1`},
		{"metrics only", "GET", "metrics", "/debug/pprof/", "", 404, ""},
		{"index", "GET", "debug", "/", "", 200, "/rlconfig"},
		{"rules", "GET", "debug", "/rlconfig", "", 200, "d.k: unit=HOUR requests_per_unit=1, shadow_mode: false, quota_mode: false"},
		{"stats", "GET", "debug", "/stats", "", 404, ""},
		{"profiles", "GET", "debug", "/debug/pprof/", "", 200, "goroutine"},
		{"no json in debug", "POST", "debug", "/json", request, 404, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, body := send(t, test.method, "http://"+r.addr[test.listener]+test.path, test.body)
			if code != test.code || !strings.Contains(body, test.want) {
				t.Errorf("%s %s = %d %.300q, want %d with %q", test.method, test.path, code, body, test.code, test.want)
			}
		})
	}
}

// TestSlowRequestsEnd has clients that send a part of a request and then nothing: after 5 s in the
// header, and 10 s in the body, the connection ends.
func TestSlowRequestsEnd(t *testing.T) {
	const head = "POST /json HTTP/1.1\r\nHost: x\r\n"
	for text, after := range map[string]time.Duration{
		"": 5 * time.Second, "POST /js": 5 * time.Second, head: 5 * time.Second,
		head + "Content-Length: 1000\r\n\r\n{": 10 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &pipes{make(chan net.Conn), make(chan struct{})}
			s := newHTTPServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // ends with an error
			}), maxHTTPHead, zap.NewNop())
			go func() { _ = s.Serve(l) }() // returns when it is closed
			ours, theirs := net.Pipe()
			l.accepted <- theirs
			begun := time.Now()
			go func() { _, _ = io.WriteString(ours, text) }()
			_, _ = io.Copy(io.Discard, ours)
			if took := time.Since(begun); took.Truncate(time.Second) != after {
				t.Errorf("after %q the connection ended in %v, want %v", text, took, after)
			}
			_ = s.Close()
		})
	}
}
