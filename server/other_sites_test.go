package server

import (
	"net"
	"net/http"
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/web"
)

// TestCrossSiteRequestsAreRejected checks that web pages of other sites, also by DNS rebinding,
// cannot read the debug listener through an operator's browser.
func TestCrossSiteRequestsAreRejected(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	h := serve(t, s, Options{}).admin.Handler(profiles)
	for _, path := range []string{"/rlconfig", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		for _, tt := range []struct {
			host   string
			header []string
			want   int
		}{
			{"localhost:6070", nil, 200},
			{"127.0.0.1:6070", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, 200},
			{"[::1]:6070", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200}, // a link
			{"localhost:6070", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
			{"evil.example:6070", nil, 403},
			{"", nil, 403},
		} {
			for _, local := range []net.Addr{servertest.Loopback, &net.UnixAddr{Name: "/s", Net: "unix"}} {
				if w := servertest.RequestAt(local, h, http.MethodGet, path, tt.host, "", tt.header...); w.Code != tt.want {
					t.Errorf("GET %s of %q at %v with %q = %d, want %d", path, tt.host, local, tt.header, w.Code, tt.want)
				}
			}
		}
	}
}

// TestJSONRejectsWebPages checks that /json answers programs such as curl, but not web pages of
// other origins, which could charge and refund through an operator's browser.
func TestJSONRejectsWebPages(t *testing.T) {
	h := newJSONHandler(answer.NewHandler(service(t, answer.Settings{}, oneRule), zap.NewNop(), nil, false), web.MaxBody)
	const request = `{"domain":"d","descriptors":[{"entries":[{"key":"other","value":"v"}]}]}`
	for _, tt := range []struct {
		method, host string
		header       []string
		want         int
	}{
		{"POST", "ratelimit:8080", nil, 200},
		{"POST", "ratelimit:8080", []string{"Content-Type", "application/x-www-form-urlencoded"}, 200}, // curl -d
		{"POST", "ratelimit:8080", []string{"Content-Type", "Application/JSON; charset=utf-8"}, 200},
		{"POST", "localhost:8080", []string{"Content-Type", "application/json", "Origin", "http://localhost:8080", "Sec-Fetch-Site", "same-origin"}, 200},
		{"POST", "localhost:8080", []string{"Content-Type", "text/plain"}, 415},
		{"POST", "localhost:8080", []string{"Content-Type", "multipart/form-data; boundary=x"}, 415},
		{"POST", "localhost:8080", []string{"Content-Type", "application/json", "Origin", "http://evil.example"}, 403},
		{"POST", "localhost:8080", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", "localhost:8080", []string{"Origin", "null"}, 403},
		{"POST", "evil.example", []string{"Content-Type", "application/json", "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"}, 403}, // DNS rebinding
		{"GET", "localhost:8080", nil, 405},
		{"PUT", "localhost:8080", nil, 405},
	} {
		if w := servertest.RequestAt(servertest.Loopback, h, tt.method, "/json", tt.host, request, tt.header...); w.Code != tt.want {
			t.Errorf("%s /json of %s with %q = %d %s, want %d", tt.method, tt.host, tt.header, w.Code, w.Body, tt.want)
		}
	}
}
