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

// proxy is an Envoy in front of a backend.
type proxy struct {
	*envoy.Envoy

	backend *backend.Backend
	// ingress is the listener that get requests from. It is "ingress" except for [share].
	ingress string
	// client uses HTTP/1.1, http2 uses HTTP/2.
	client, http2 *http.Client
}

// setup describes one sluice and the Envoy in front of it.
type setup struct {
	// rules is the text of the rules file.
	rules string
	// args contains more flags of sluice.
	args []string
	listener
}

func startSetup(t *testing.T, s setup) (*proxy, *sluice.Sluice) {
	t.Helper()
	limits := startSluice(t, sluice.Options{Args: append(s.args, "--config", suite.WriteRules(t, s.rules))})
	return startProxy(t, []listener{s.listener}, "", limits), limits
}

// startSluice starts the binary of the options, by default that of TestMain.
func startSluice(tb testing.TB, o sluice.Options) *sluice.Sluice {
	tb.Helper()
	if o.Binary == "" {
		o.Binary = sluiceBinary
	}
	// With the race detector, counting a large table for /metrics takes a second.
	o.Args = append([]string{"--counter-memory", "4MiB", "--drain-timeout", "1h"}, o.Args...)
	// By default the race detector sleeps for a second at exit.
	o.Env = append(o.Env, "GORACE=atexit_sleep_ms=10")
	return suite.StartSluice(tb, o)
}

// startProxy starts a backend and an Envoy that calls the given replicas in round-robin order.
// clusterFields (YAML) are added to their cluster.
func startProxy(tb testing.TB, listeners []listener, clusterFields string, limits ...*sluice.Sluice) *proxy {
	tb.Helper()
	var addrs []string
	for _, s := range limits {
		addrs = append(addrs, s.Addr("grpc"))
	}
	return startProxyTo(tb, listeners, clusterFields, addrs)
}

// startProxyTo is startProxy with the addresses of rate limit services.
func startProxyTo(tb testing.TB, listeners []listener, clusterFields string, addrs []string) *proxy {
	tb.Helper()
	return startProxyWith(tb, envoy.Options{}, listeners, clusterFields, addrs)
}

// startProxyWith is startProxyTo with options of Envoy.
func startProxyWith(tb testing.TB, o envoy.Options, listeners []listener, clusterFields string, addrs []string) *proxy {
	tb.Helper()
	upstream := suite.StartBackend(tb)
	o.Bootstrap = bootstrap(tb, listeners, clusterFields)
	o.Clusters = map[string][]string{"sluice": addrs, "backend": {upstream.Addr}}
	e := suite.StartEnvoy(tb, root, o)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	tb.Cleanup(client.CloseIdleConnections)
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	http2 := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	tb.Cleanup(http2.CloseIdleConnections)
	return &proxy{Envoy: e, backend: upstream, ingress: "ingress", client: client, http2: http2}
}

// reply is an answer of Envoy.
type reply struct {
	status int
	header http.Header
}

func (r reply) get(name string) string { return r.header.Get(name) }

// number returns the value of a numeric header, or -1.
func (r reply) number(name string) int {
	if n, err := strconv.Atoi(r.get(name)); err == nil {
		return n
	}
	return -1
}

// get requests a path from the default listener, with headers in the form name: value.
func (p *proxy) get(t *testing.T, path string, headers ...string) reply {
	t.Helper()
	r, err := p.getFrom(t.Context(), p.ingress, path, headers...)
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

// metric returns the sum of the series of sluice with the given name and labels (name="value").
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
