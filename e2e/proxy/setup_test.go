package proxy_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

const patience = suite.Patience

// proxy is an Envoy before a backend.
type proxy struct {
	*envoy.Envoy

	backend *backend.Backend
	// client speaks HTTP/1.1, http2 HTTP/2.
	client, http2 *http.Client
}

// setup says what runs in a test.
type setup struct {
	// rules is a file of rules.
	rules string
	// args are more flags of sluice.
	args []string
	listener
}

// startSetup runs one sluice and one Envoy.
func startSetup(t *testing.T, s setup) (*proxy, *sluice.Sluice) {
	t.Helper()
	limits := startSluice(t, sluice.Options{Args: append(s.args, "--config", suite.WriteRules(t, s.rules))})
	return startProxy(t, []listener{s.listener}, "", limits), limits
}

// startSluice runs the binary of TestMain, or that of the options.
func startSluice(t *testing.T, o sluice.Options) *sluice.Sluice {
	t.Helper()
	if o.Binary == "" {
		o.Binary = sluiceBinary
	}
	// A large table takes the race detector a second to count for /metrics.
	o.Args = append([]string{"--counter-memory", "4MiB"}, o.Args...)
	// The race detector would sleep a second at each exit.
	o.Env = append(o.Env, "GORACE=atexit_sleep_ms=10")
	return suite.StartSluice(t, o)
}

// startProxy runs a backend and an Envoy that asks the sluices in turn. cluster is more
// fields of their cluster, in YAML.
func startProxy(t *testing.T, listeners []listener, clusterFields string, limits ...*sluice.Sluice) *proxy {
	t.Helper()
	var addrs []string
	for _, s := range limits {
		addrs = append(addrs, s.Addr("grpc"))
	}
	return startProxyTo(t, listeners, clusterFields, addrs)
}

// startProxyTo is startProxy with the addresses of rate-limit services.
func startProxyTo(t *testing.T, listeners []listener, clusterFields string, addrs []string) *proxy {
	t.Helper()
	upstream := suite.StartBackend(t)
	e := suite.StartEnvoy(t, root, envoy.Options{
		Bootstrap: bootstrap(t, listeners, clusterFields),
		Clusters:  map[string][]string{"sluice": addrs, "backend": {upstream.Addr}},
	})
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	t.Cleanup(client.CloseIdleConnections)
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	http2 := &http.Client{Timeout: patience, Transport: &http.Transport{Protocols: protocols}}
	t.Cleanup(http2.CloseIdleConnections)
	return &proxy{Envoy: e, backend: upstream, client: client, http2: http2}
}

// reply is what a client gets.
type reply struct {
	status int
	header http.Header
}

func (r reply) get(name string) string { return r.header.Get(name) }

// number returns a header that is a number, -1 for any other.
func (r reply) number(name string) int {
	if n, err := strconv.Atoi(r.get(name)); err == nil {
		return n
	}
	return -1
}

// get asks the listener ingress for a path, with headers given as name: value.
func (p *proxy) get(t *testing.T, path string, headers ...string) reply {
	t.Helper()
	r, err := p.getFrom(t.Context(), "ingress", path, headers...)
	must.OK(t, err)
	return r
}

func (p *proxy) getFrom(ctx context.Context, listener, path string, headers ...string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr(listener)+path, http.NoBody)
	if err != nil {
		return reply{}, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return reply{}, err
	}
	return reply{resp.StatusCode, resp.Header}, nil
}

// metric returns the sum of sluice's series of that name that have all labels,
// given as name="value".
func metric(t *testing.T, s *sluice.Sluice, name string, labels ...string) float64 {
	t.Helper()
	return suite.Metrics(t, s).Sum(name, labels...)
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}
