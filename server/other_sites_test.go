package server

import (
	"net"
	"net/http"
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/web"
)

// TestCrossSiteRequestsAreRejected checks that web pages of other sites, also by DNS rebinding,
// cannot use the debug listener through a browser of an operator, with or without rights.
func TestCrossSiteRequestsAreRejected(t *testing.T) {
	link := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	for name, h := range map[string]http.Handler{
		"no rights": serve(t, service(t, answer.Settings{}, shownRules), Options{}).admin.Handler(profiles),
		"rights":    serveRights(t).admin.Handler(profiles),
	} {
		for _, path := range []string{
			"/", "/rlconfig", "/debug/pprof/", "/debug/pprof/symbol",
			admin.StatePath, admin.TablesPath, admin.CountersPath + "?domain=d&descriptor=user=al",
		} {
			for _, tt := range []struct {
				method, host string
				header       []string
				want         int
			}{
				{"GET", "localhost:6070", nil, 200},
				{"GET", "127.0.0.1:6070", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, 200},
				{"GET", "[::1]:6070", link, 200},
				{"POST", "[::1]:6070", link, 403}, // a form
				{"GET", "localhost:6070", append(link[:4:4], "Sec-Fetch-Dest", "iframe"), 403},
				{"GET", "localhost:6070", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
				{"GET", "localhost:6070", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Authorization", "Bearer " + writeToken}, 403},
				{"GET", "evil.example:6070", nil, 403},
				{"GET", "", nil, 403},
			} {
				want := tt.want
				if want == 403 && tt.header == nil {
					switch {
					case name == "rights":
						want = 401 // the request is not local, so it needs a token
					case path == "/":
						want = 200 // the list of paths
					}
				}
				for _, local := range []net.Addr{servertest.Loopback, &net.UnixAddr{Name: "/s", Net: "unix"}} {
					if w := servertest.RequestAt(local, h, tt.method, path, tt.host, "", tt.header...); w.Code != want {
						t.Errorf("%s: %s %s of %q at %v with %q = %d, want %d", name, tt.method, path, tt.host, local, tt.header, w.Code, want)
					}
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
