//go:build more

package proxy_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// TestConnectionsStayOpen connects an Envoy with two workers over a Unix socket, with PINGs from
// both ends. Every request is answered and neither end closes a connection. Other tests cover TCP,
// TLS, health checks and connections that reach their maximum age.
func TestConnectionsStayOpen(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		socket  bool
		args    []string
		cluster string
	}{
		"a unix socket": {socket: true},
		"pings": {
			args: []string{"--keepalive-min-time", "1ms", "--keepalive-time", "1s", "--keepalive-timeout", "1m"},
			cluster: `
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: { http2_protocol_options: { connection_keepalive: { interval: 0.01s, timeout: 30s } } }
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := sluice.Options{Args: append(tt.args, "--config", suite.WriteRules(t, highLimitRules))}
			if tt.socket {
				o.Addrs = map[string]string{"grpc": "unix://" + filepath.Join(t.TempDir(), "grpc")}
			}
			limits := startSluice(t, o)
			addr := limits.Addr("grpc")
			if tt.socket {
				addr = o.Addrs["grpc"]
			}
			p := startProxyTo(t, userListeners, tt.cluster, []string{addr})
			l := startLoad(t, 8, func() (string, error) {
				got, err := p.getFrom(t.Context(), "ingress", "/", "x-user: al")
				return strconv.Itoa(got.status), err
			})
			suite.Eventually(t, "2000 answers", func() bool { return l.total() >= 2000 })
			if got := slices.Collect(maps.Keys(l.stop())); !slices.Equal(got, []string{"200"}) {
				t.Errorf("answers are %q, want 200 only", got)
			}
			if n := p.connections(t); n > 2 {
				t.Errorf("Envoy has opened %d connections, want one per worker", n)
			}
			if n := metric(t, limits, "sluice_grpc_connections_closed_total"); n != 0 {
				t.Errorf("sluice closed %v connections", n)
			}
		})
	}
}
