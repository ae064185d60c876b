package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

const shopEnvoy = "spiffe://cluster.local/ns/shop/sa/envoy"

// allowListServer is a server with an allow list, and the authority of its clients.
type allowListServer struct {
	*running
	service *answer.Service
	ours    *testcert.Authority
	files   testcert.Files
}

func serveGuarded(t *testing.T, options Options, allow ...string) *allowListServer {
	t.Helper()
	g := new(allowListServer)
	g.ours, g.files = serverFiles(t)
	g.service = service(t, answer.Settings{Allow: allowList(t, allow...)}, oneRule)
	options.TLS = serverTLS(t, access.TLSOptions{
		Cert: g.files.Cert, Key: g.files.Key, CA: g.files.CA, Metrics: g.service.Metrics().TLS("grpc"),
	})
	g.running = serve(t, g.service, options)
	return g
}

// dialAs returns a connection with a certificate for the given names.
func (g *allowListServer) dialAs(t *testing.T, names ...string) *grpc.ClientConn {
	t.Helper()
	f := write(t, issue(t, g.ours, testcert.Leaf{Names: names}), g.ours.PEM)
	return g.dialTLS(t, clientTLS(t, access.TLSOptions{Cert: f.Cert, Key: f.Key, CA: f.CA}))
}

func (g *allowListServer) dialTLS(t *testing.T, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+g.addr["grpc"], grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// requestDomain sends a request for one domain.
func requestDomain(t *testing.T, conn *grpc.ClientConn, domain string) error {
	t.Helper()
	request := simpleRequest()
	request.Domain = domain
	_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request)
	return err
}

// TestAllowListByDomain requests each kind of domain with each kind of certificate.
func TestAllowListByDomain(t *testing.T) {
	g := serveGuarded(t, Options{}, shopEnvoy+"=d,e", "edge.example.com=*")
	denied := 0
	for _, tt := range []struct {
		names  []string
		domain string
		want   codes.Code
		text   string
	}{
		{[]string{shopEnvoy}, "d", codes.OK, ""},
		{[]string{shopEnvoy}, "e", codes.OK, ""}, // the domain has no rules
		{[]string{shopEnvoy}, "other", codes.PermissionDenied, `the client certificate (["` + shopEnvoy + `"]) may not request domain "other": --grpc-allow does not grant it`},
		{[]string{shopEnvoy}, "", codes.Unknown, "domain must not be empty"},
		{[]string{"edge.example.com"}, "d", codes.OK, ""},
		{[]string{"edge.example.com"}, "other", codes.OK, ""},
		{[]string{"stranger.example.com"}, "d", codes.PermissionDenied, `"stranger.example.com"`},
		{[]string{"127.0.0.1"}, "d", codes.PermissionDenied, "no name that is a DNS name or a URI"},
		{nil, "d", codes.PermissionDenied, "no name that is a DNS name or a URI"},
		{[]string{"stranger.example.com", shopEnvoy}, "d", codes.OK, ""},
	} {
		conn := g.dialAs(t, tt.names...)
		for range 2 { // the second call reuses the connection
			err := requestDomain(t, conn, tt.domain)
			if got := status.Convert(err); got.Code() != tt.want || !strings.Contains(got.Message(), tt.text) {
				t.Errorf("%q requests %q: %v, want %v with %q", tt.names, tt.domain, err, tt.want, tt.text)
			}
			if tt.want == codes.PermissionDenied {
				denied++
			}
		}
		// Each client with a certificate may use health and reflection.
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Errorf("health check of %q: %v", tt.names, err)
		}
		stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Errorf("reflection request of %q: %v", tt.names, err)
		}
	}
	if got := testutil.ToFloat64(g.service.Metrics().Rejected.NotAllowed); got != float64(denied) {
		t.Errorf("%v denials counted, want %d", got, denied)
	}
	// One line names the client and the domain. Further denials are only counted.
	lines := g.logs.FilterMessageSnippet("request denied").All()
	if len(lines) < 1 || len(lines) > 2 { // two if the ten seconds have passed
		t.Fatalf("%d log lines for %d denials, want 1", len(lines), denied)
	}
	if m := lines[0].ContextMap(); m["certificate"] != `["`+shopEnvoy+`"]` || m["domain"] != `"other"` {
		t.Errorf("the log line has the fields %v", m)
	}

	// A client without a certificate, or with one of another authority, fails in the handshake.
	otherAuthority := authority(t)
	forged := write(t, issue(t, otherAuthority, testcert.Leaf{Names: []string{shopEnvoy}}), g.ours.PEM)
	for name, creds := range map[string]credentials.TransportCredentials{
		"no certificate":       clientTLS(t, access.TLSOptions{CA: g.files.CA}),
		"of another authority": clientTLS(t, access.TLSOptions{Cert: forged.Cert, Key: forged.Key, CA: forged.CA}),
	} {
		conn := g.dialTLS(t, creds)
		if err := requestDomain(t, conn, "d"); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, want no connection", name, err)
		}
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: the health check returns %v, want no connection", name, err)
		}
	}
}

// TestAllowListAppliesToEveryListener tries to bypass the allow list.
func TestAllowListAppliesToEveryListener(t *testing.T) {
	for _, jsonAddr := range []string{"", "127.0.0.1:0"} {
		t.Run("json "+jsonAddr, func(t *testing.T) {
			g := serveGuarded(t, Options{JSONAddr: jsonAddr}, shopEnvoy+"=d")
			requests := map[string]string{} // by domain
			for _, domain := range []string{"d", "other"} {
				request := simpleRequest()
				request.Domain = domain
				text, err := protojson.Marshal(request)
				if err != nil {
					t.Fatal(err)
				}
				requests[domain] = string(text)
			}
			for _, listener := range []string{"http", "debug", "metrics"} {
				want := http.StatusNotFound
				if listener == "http" {
					want = http.StatusForbidden
				}
				if code, text := send(t, http.MethodPost, "http://"+g.addr[listener]+"/json", requests["d"]); code != want {
					t.Errorf("/json on the %s listener returns %d %s, want %d", listener, code, text, want)
				}
			}
			if code, text := get(t, "http://"+g.addr["http"]+"/healthcheck"); code != http.StatusOK {
				t.Errorf("/healthcheck returns %d %s, want 200", code, text)
			}
			if jsonAddr == "" {
				if _, listens := g.addr["json"]; listens {
					t.Error("the json listener is open, although it has no address")
				}
				return
			}
			for _, tt := range []struct {
				names        []string
				domain, path string
				want         int
				text         string
			}{
				{[]string{shopEnvoy}, "d", "/json", 200, `"overallCode":"OK"`},
				{[]string{shopEnvoy}, "other", "/json", 403, "--grpc-allow does not grant it"},
				{[]string{"stranger.example.com"}, "d", "/json", 403, `"stranger.example.com"`},
				{[]string{shopEnvoy}, "d", "/healthcheck", 404, ""},
				{[]string{shopEnvoy}, "d", "/counters", 404, ""},
			} {
				code, text, err := g.post(t, tt.path, requests[tt.domain], issue(t, g.ours, testcert.Leaf{Names: tt.names}))
				if err != nil || code != tt.want || !strings.Contains(strings.ReplaceAll(text, " ", ""), strings.ReplaceAll(tt.text, " ", "")) {
					t.Errorf("%q requests %q on %s: %d %q %v, want %d with %q", tt.names, tt.domain, tt.path, code, text, err, tt.want, tt.text)
				}
			}
			// Two requests had a certificate without a right to the domain.
			if got := testutil.ToFloat64(g.service.Metrics().Rejected.NotAllowed); got != 2 {
				t.Errorf("%v denials counted, want 2", got)
			}
			before := testutil.ToFloat64(g.service.Metrics().TLS("grpc").HandshakeErrors)
			if _, _, err := g.post(t, "/json", requests["d"]); err == nil {
				t.Error("a client without a certificate gets a response")
			}
			if _, _, err := g.post(t, "/json", requests["d"], issue(t, authority(t), testcert.Leaf{Names: []string{shopEnvoy}})); err == nil {
				t.Error("a client with a certificate of another authority gets a response")
			}
			if code, text := send(t, http.MethodPost, "http://"+g.addr["json"]+"/json", requests["d"]); code == http.StatusOK {
				t.Errorf("in plain text the response is %s", text)
			}
			servertest.WaitFor(t, "the failed handshakes are counted", func() bool {
				return testutil.ToFloat64(g.service.Metrics().TLS("grpc").HandshakeErrors) == before+3
			})
		})
	}
}

// post posts JSON to the JSON listener with a certificate.
func (g *allowListServer) post(t *testing.T, path, body string, pairs ...testcert.Pair) (int, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	must.OK(t, err)
	r.Header.Set("Content-Type", "application/json")
	return g.do(t, r, pairs...)
}

// do sends a request to the JSON listener with a certificate.
func (g *allowListServer) do(t *testing.T, r *http.Request, pairs ...testcert.Pair) (int, string, error) {
	t.Helper()
	config := &tls.Config{ServerName: host, RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(g.ours.PEM)
	for _, p := range pairs {
		cert, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	r.URL.Scheme, r.URL.Host = "https", g.addr["json"]
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// TestAllowListRequiresCertificates checks that a server does not start if it cannot identify
// clients.
func TestAllowListRequiresCertificates(t *testing.T) {
	s := service(t, answer.Settings{Allow: allowList(t, shopEnvoy+"=d")}, oneRule)
	_, f := serverFiles(t)
	for name, o := range map[string]Options{
		"plain text":                   {},
		"clients without certificates": {TLS: serverTLS(t, access.TLSOptions{Cert: f.Cert, Key: f.Key})},
	} {
		o.GRPCAddr = "127.0.0.1:0"
		if err := New(o, s, zap.NewNop()).Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "it needs TLS with authorities") {
			t.Errorf("%s: Listen() = %v, want an error about TLS", name, err)
		}
	}
	open := service(t, answer.Settings{}, oneRule)
	if err := New(Options{JSONAddr: "127.0.0.1:0"}, open, zap.NewNop()).Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "TLS is required") {
		t.Errorf("/json over TLS without TLS: Listen() = %v, want an error", err)
	}
	// Fail closed: a connection without an identity is denied.
	var c answer.Exchange
	if _, _, err := s.Answer(noon, 0, &c, marshal(t, simpleRequest())); err == nil || !strings.Contains(err.Error(), "no client certificate: --grpc-allow grants no domain") {
		t.Errorf("a request without a client identity: %v, want a denial", err)
	}
}

// TestChangedCertificateAppliesAtNextHandshake replaces the certificate of a connected client by
// one with another name.
func TestChangedCertificateAppliesAtNextHandshake(t *testing.T) {
	g := serveGuarded(t, Options{}, "one.example.com=d", "two.example.com=e")
	dir := t.TempDir()
	files, err := testcert.Mount(dir, issue(t, g.ours, testcert.Leaf{Names: []string{"one.example.com"}}), g.ours.PEM)
	if err != nil {
		t.Fatal(err)
	}
	own := clientTLS(t, access.TLSOptions{Cert: files.Cert, Key: files.Key, CA: files.CA})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { own.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()

	old := g.dialTLS(t, own)
	if err := requestDomain(t, old, "d"); err != nil {
		t.Fatal(err)
	}
	if _, err := testcert.Mount(dir, issue(t, g.ours, testcert.Leaf{Names: []string{"two.example.com"}}), g.ours.PEM); err != nil {
		t.Fatal(err)
	}
	servertest.WaitFor(t, "a new connection has the new name", func() bool {
		conn := g.dialTLS(t, own)
		defer conn.Close()
		return requestDomain(t, conn, "e") == nil && status.Code(requestDomain(t, conn, "d")) == codes.PermissionDenied
	})
	if err := requestDomain(t, old, "d"); err != nil {
		t.Errorf("a request on the old connection: %v, want success as before", err)
	}
	if err := requestDomain(t, old, "e"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a request on the old connection for the domain of the new certificate: %v, want a denial", err)
	}
}

func TestPlainJSONWithClientCertificatesIsLogged(t *testing.T) {
	_, f := serverFiles(t)
	secure := serverTLS(t, access.TLSOptions{Cert: f.Cert, Key: f.Key, CA: f.CA})
	for _, tt := range []struct {
		settings answer.Settings
		options  Options
		want     string
	}{
		{answer.Settings{}, Options{TLS: secure, HTTPAddr: "127.0.0.1:0"}, "/json on the http listener requires no client certificate"},
		{answer.Settings{}, Options{TLS: secure}, ""},
		{answer.Settings{}, Options{TLS: secure, HTTPAddr: "127.0.0.1:0", JSONAddr: "127.0.0.1:0"}, ""},
		{answer.Settings{}, Options{HTTPAddr: "127.0.0.1:0"}, ""},
		{answer.Settings{Allow: allowList(t, "a=b")}, Options{TLS: secure, HTTPAddr: "127.0.0.1:0"}, "/json is disabled"},
		{answer.Settings{Allow: allowList(t, "a=b")}, Options{TLS: secure, HTTPAddr: "127.0.0.1:0", JSONAddr: "127.0.0.1:0"}, ""},
	} {
		core, logs := observer.New(zap.InfoLevel)
		s := service(t, tt.settings, oneRule)
		tt.options.JSON = true
		srv := New(tt.options, s, zap.New(core))
		if err := srv.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		srv.closeListeners()
		found := ""
		for _, line := range logs.All() {
			if strings.Contains(line.Message, "/json") {
				found = line.Message
			}
		}
		if !strings.HasPrefix(found, tt.want) || tt.want == "" && found != "" {
			t.Errorf("%+v logs %q, want %q", tt.options, found, tt.want)
		}
	}
}

// TestAllowedRequestsDoNotAllocate checks that checking the allow list does not allocate.
func TestAllowedRequestsDoNotAllocate(t *testing.T) {
	open := service(t, answer.Settings{Clock: clock.New()}, oneRule)
	allow := allowList(t, shopEnvoy+"=d")
	listed := service(t, answer.Settings{Clock: clock.New(), Allow: allow}, oneRule)
	request := marshal(t, simpleRequest())
	uri, err := url.Parse(shopEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	client := allow.Client(certificate(t, fmt.Sprint(uri)))
	for name, s := range map[string]*answer.Service{"without": open, "with": listed} {
		h := answer.NewHandler(s, zap.NewNop(), nil, false)
		x := &answer.Exchange{Request: request, Client: client}
		allocs := must.AllocsPerRun(100, func() {
			if err := h.Answer(t.Context(), x, nil); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s an allow list a request allocates %v times, want 0", name, allocs)
		}
	}
}
