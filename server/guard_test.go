package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

const shownRules = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 2, name: yearly}}
`

const (
	readToken    = "reading-0123456789abcdef0123456789"
	writeToken   = "writing-0123456789abcdef0123456789"
	unknownToken = "unknownToken-0123456789abcdef0123456789"
	alice        = "spiffe://cluster.local/ns/ops/sa/alice"
)

// rightsServer is a running service whose debug listener requires rights, with the credentials of
// its clients.
type rightsServer struct {
	*running
	service *answer.Service
	names   map[string]testcert.Files // certificates of clients, by name
}

func serveRights(t *testing.T) *rightsServer {
	t.Helper()
	ours, mine := serverFiles(t)
	others := authority(t)
	g := &rightsServer{service: service(t, answer.Settings{}, shownRules), names: map[string]testcert.Files{}}
	for name, leaf := range map[string]testcert.Leaf{
		"reader": {Names: []string{"reader.test"}}, "alice": {Names: []string{alice}}, "nobody": {Names: []string{"nobody.test"}},
	} {
		g.names[name] = write(t, issue(t, ours, leaf), ours.PEM)
	}
	g.names["stranger"] = write(t, issue(t, others, testcert.Leaf{Names: []string{alice}}), ours.PEM)
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("read grafana "+readToken+"\nwrite bob "+writeToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.ReadTokens(access.TokenOptions{File: path})
	if err != nil {
		t.Fatal(err)
	}
	clients, err := access.ParseRights([]string{"reader.test=read", "spiffe://cluster.local/ns/ops/*=write"})
	if err != nil {
		t.Fatal(err)
	}
	g.running = serve(t, g.service, Options{
		DebugTLS:    serverTLS(t, access.TLSOptions{Cert: mine.Cert, Key: mine.Key, CA: mine.CA, PeerOptional: true}),
		DebugRights: admin.Rights{Tokens: tokens, Clients: clients},
	})
	return g
}

// request sends a request that seems to come from another machine, to the listener's own name.
// certificate is the name of the client's certificate, or empty; authorization is the value of the
// header Authorization.
func (g *rightsServer) request(t *testing.T, method, path, certificate, authorization string, header ...string) (int, http.Header, string, error) {
	t.Helper()
	options := access.TLSOptions{CA: g.names["alice"].CA}
	if certificate != "" {
		options.Cert, options.Key = g.names[certificate].Cert, g.names[certificate].Key
	}
	transport := &http.Transport{
		TLSClientConfig: clientTLS(t, options).HTTPClient(), DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", g.addr["debug"])
		},
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(body), err
}

// TestRights requests every page of the debug listener from another machine, with tokens and with
// certificates.
func TestRights(t *testing.T) {
	g := serveRights(t)
	bearer := func(token string) string { return "Bearer " + token }
	basic := func(token string) string {
		r, _ := http.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth("anybody", token)
		return r.Header.Get("Authorization")
	}
	type caller struct {
		certificate, authorization string
		code                       int // status of requests that only read
		change                     int
	}
	for _, a := range []caller{
		{"", "", 401, 401},
		{"", bearer(unknownToken), 401, 401},
		{"", bearer(""), 401, 401}, // same as no token
		{"", bearer(readToken + "0"), 401, 401},
		{"", "Digest " + writeToken, 401, 401},
		{"", bearer(readToken), 200, 403},
		{"", bearer(writeToken), 200, 200},
		{"", "bearer " + writeToken, 200, 200},
		{"", basic(readToken), 200, 403},
		{"", basic(writeToken), 200, 200},
		{"", basic(unknownToken), 401, 401},
		{"reader", "", 200, 403},
		{"alice", "", 200, 200},
		{"nobody", "", 403, 403},
		{"nobody", bearer(writeToken), 200, 200},
		{"alice", bearer(unknownToken), 401, 401}, // a token takes precedence over a certificate
		{"alice", bearer(readToken), 200, 403},
	} {
		for _, target := range []struct{ method, path string }{
			{"GET", "/"},
			{"GET", admin.StatePath},
			{"GET", "/counters?domain=d&descriptor=user=al"},
			{"GET", "/rlconfig"},
			{"GET", "/debug/pprof/"},
			{"GET", "/debug/pprof/symbol"},
			{"POST", admin.ResetPath + "?domain=d"},
			{"POST", admin.UnmaskPath + "?for=0s"},
		} {
			for range 5 {
				servertest.Hit(t, g.service, "user", "al", 1, nil)
			}
			want := a.code
			if target.method != "GET" {
				want = a.change
			}
			code, header, body, err := g.request(t, target.method, target.path, a.certificate, a.authorization)
			if err != nil || code != want {
				t.Errorf("%+v: %s %s = %d %s %v, want %d", a, target.method, target.path, code, body, err, want)
			}
			if challenge := header.Values("WWW-Authenticate"); (code == 401) != (len(challenge) == 1) {
				t.Errorf("%+v: %s %s = %d with the challenge %q", a, target.method, target.path, code, challenge)
			}
		}
	}
	if code, _, _, err := g.request(t, "GET", admin.StatePath, "stranger", ""); err == nil {
		t.Errorf("a certificate of another authority = %d, want a failed handshake", code)
	}
	_, header, _, _ := g.request(t, "GET", "/", "", "", "Accept", "text/html")
	if challenge := header.Values("WWW-Authenticate"); len(challenge) != 2 || !strings.HasPrefix(challenge[1], "Basic ") {
		t.Errorf("a browser gets the challenge %q, want one for a password as well", challenge)
	}
	code, _, body, _ := g.request(t, "POST", admin.ResetPath+"?domain=d", "", basic(writeToken), "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	if code != 403 || !strings.Contains(body, "a web page of another site sent this request") {
		t.Errorf("a request from a page of another origin with the browser's password = %d %s, want 403", code, body)
	}
	for reason, c := range map[string]float64{
		"no_credentials": testutil.ToFloat64(g.service.Metrics().DebugDenied.NoCredentials),
		"unknown_token":  testutil.ToFloat64(g.service.Metrics().DebugDenied.UnknownToken),
		"not_granted":    testutil.ToFloat64(g.service.Metrics().DebugDenied.NotGranted),
	} {
		want := map[string]float64{"no_credentials": 3*8 + 1, "unknown_token": 4 * 8, "not_granted": 8 + 2*4}[reason]
		if c != want {
			t.Errorf("%v requests with the reason %s were denied, want %v", c, reason, want)
		}
	}
	if n := g.logs.FilterMessageSnippet("request to the debug listener denied").Len(); n == 0 || n > 40 {
		t.Errorf("%d log lines report denials, want 1 to 40", n)
	}
}

// TestResetsAreAttributed checks that logs and events name the token or the certificate, and never
// contain a token.
func TestResetsAreAttributed(t *testing.T) {
	g := serveRights(t)
	for _, a := range []struct{ certificate, authorization, by string }{
		{"", "Bearer " + writeToken, "token bob from 127.0.0.1:"},
		{"alice", "", `certificate ["` + alice + `"] from 127.0.0.1:`},
	} {
		for range 5 {
			servertest.Hit(t, g.service, "user", "al", 1, nil)
		}
		if code, _, body, err := g.request(t, "POST", admin.ResetPath+"?domain=d", a.certificate, a.authorization); code != 200 || err != nil {
			t.Fatalf("the reset is %d %s, %v", code, body, err)
		}
		lines := g.logs.FilterMessage("counters reset").All()
		if len(lines) == 0 || !strings.HasPrefix(fmt.Sprint(lines[len(lines)-1].ContextMap()["by"]), a.by) {
			t.Errorf("the log lines are %+v, want by %s", lines, a.by)
		}
	}
	_, _, _, _ = g.request(t, "GET", admin.StatePath, "", "Bearer "+unknownToken)
	_, _, state, _ := g.request(t, "GET", admin.StatePath, "", "Bearer "+writeToken)
	for _, token := range []string{readToken, writeToken, unknownToken} {
		if strings.Contains(state, token) || strings.Contains(fmt.Sprint(g.logs.All()), token) {
			t.Error("the state or the log contains a token")
		}
	}
}

// TestPageWithoutRightToWrite checks that the page knows the right of its reader, because it has reset
// buttons only for those that may write.
func TestPageWithoutRightToWrite(t *testing.T) {
	g := serveRights(t)
	for range 5 {
		servertest.Hit(t, g.service, "user", "al", 1, nil)
	}
	for token, want := range map[string]bool{readToken: false, writeToken: true} {
		code, _, body, err := g.request(t, "GET", "/", "", "Bearer "+token, "Accept", "text/html")
		if got := strings.Contains(body, ` data-right="write"`); code != 200 || err != nil || got != want || !strings.Contains(body, "<!doctype html>") {
			t.Errorf("with %s the page = %d, %v, buttons: %t, want %t", token, code, err, got, want)
		}
	}
}

// TestLocalRequestsHaveRights checks that kubectl port-forward needs no token, and that the right
// of a token applies if one is sent.
func TestLocalRequestsHaveRights(t *testing.T) {
	g := serveRights(t)
	c := client.Debug{Addr: g.addr["debug"], TLS: clientTLS(t, access.TLSOptions{CA: g.names["alice"].CA})}
	for token, want := range map[string]string{
		"": "", writeToken: "", readToken: "403 Forbidden: token grafana from 127.0.0.1:", unknownToken: "401 Unauthorized: the token is not one of --debug-token-file",
	} {
		servertest.Hit(t, g.service, "user", "al", 100, nil)
		c.Token = token
		for _, reset := range []bool{false, true} {
			_, err := c.ResetCounters(t.Context(), live.Selection{Domain: "d"}, reset)
			if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("with the token %q, reset %t: %v, want %q", token, reset, err, want)
			}
		}
	}
	c.TLS = nil
	c.Token = ""
	if _, err := c.State(t.Context(), 1); err == nil || err.Error() != "the server speaks TLS: use --tls" {
		t.Errorf("a client without TLS gets %v", err)
	}
	c.Addr, c.Token = "sluice.test:6070", readToken
	if _, err := c.State(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "tokens are only sent over TLS") {
		t.Errorf("a token without TLS to another machine: %v", err)
	}
}

// TestRightsNeedTLS checks that tokens are never required over plain text.
func TestRightsNeedTLS(t *testing.T) {
	clients, err := access.ParseRights([]string{"a=read"})
	if err != nil {
		t.Fatal(err)
	}
	srv := New(Options{DebugAddr: "127.0.0.1:0", DebugRights: admin.Rights{Clients: clients}}, service(t, answer.Settings{}, oneRule), zap.NewNop())
	if err := srv.Listen(t.Context()); err == nil || err.Error() != "debug listener: rights require TLS" {
		t.Errorf("Listen() = %v, want an error", err)
	}
}
