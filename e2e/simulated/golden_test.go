package simulated_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/simulate"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

var update = flag.Bool("update", false, "replace the logs in testdata by those of the current Envoy")

// goldenLog is a format and the descriptors that simulate creates from its lines.
type goldenLog struct {
	logFormat

	templates []string
}

// golden are logs of the same requests in all formats.
var golden = []goldenLog{
	{logFormat{name: "default"}, []string{"agent={user-agent},path={:path}"}},
	{logFormat{name: "istio", text: istioText}, []string{"agent={user-agent},path={:path}"}},
	{logFormat{name: "gateway", json: gatewayJSON}, []string{"agent={user-agent},path={:path}"}},
	{logFormat{name: "nul", text: nulText + "\n", format: nulText}, []string{"agent={user-agent},path={:path}", "nul={dynamic_metadata(golden:nul)}"}},
	{logFormat{name: "metadata-text", text: "%START_TIME% %RESPONSE_CODE% " + metadataOperator + "\n", format: "%START_TIME% %RESPONSE_CODE% " + metadataOperator}, nil},
	{logFormat{name: "metadata-json", json: map[string]string{"time": "%START_TIME(%s.%9f)%", "status": "%RESPONSE_CODE%", "asked": metadataOperator}}, nil},
	{logFormat{name: "csv", text: "%START_TIME%,%RESPONSE_CODE%,%REQ(USER-AGENT)%,%REQ(:PATH)%\n", format: "csv"}, []string{"agent={agent},path={path}"}},
	{logFormat{name: "otlp", format: "otlp"}, []string{"agent={agent},path={path}"}},
}

// nulText is a format with a value that contains a NUL.
const nulText = `%START_TIME% %RESPONSE_CODE% "%REQ(USER-AGENT)%" <%DYNAMIC_METADATA(golden:nul)%> %REQ(:PATH)%`

// csvHeader is the header above Envoy's lines of CSV.
const csvHeader = "time,status,agent,path\n"

// goldenRules limit all descriptors of the logs.
const goldenRules = `
domain: shop
descriptors:
  - { key: agent, descriptors: [{ key: path, rate_limit: { unit: day, requests_per_unit: 100 } }] }
  - { key: nul, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: user, rate_limit: { unit: day, requests_per_unit: 100 } }
`

// goldenBootstrap is the configuration of an Envoy with direct responses. Its filter sets the
// metadata of a rate limit filter, and a value with a NUL.
const goldenBootstrap = `
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }
static_resources:
  listeners:
    - name: ingress
      address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: ingress
                access_log: ACCESS_LOG
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - { name: denied, match: { path: /denied }, direct_response: { status: 429 } }
                        - { name: others, match: { prefix: / }, direct_response: { status: 200 } }
                http_filters:
                  - name: envoy.filters.http.set_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata:
                        - { metadata_namespace: golden, value: { nul: "n\0l" } }
                        - metadata_namespace: envoy.filters.http.ratelimit
                          value: { domain: shop, descriptors: [{ entries: [[user, "a\"\0l"]], hits: 1 }] }
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: collector
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
      load_assignment:
        cluster_name: collector
        endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 1 } } } }] }]
`

// otlpAccessLog sends the log to the collector.
const otlpAccessLog = `
                  - name: envoy.access_loggers.open_telemetry
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig
                      common_config:
                        log_name: golden
                        transport_api_version: V3
                        grpc_service: { envoy_grpc: { cluster_name: collector } }
                        buffer_flush_interval: 0.1s
                      attributes:
                        values:
                          - { key: response_code, value: { string_value: "%RESPONSE_CODE%" } }
                          - { key: agent, value: { string_value: "%REQ(USER-AGENT)%" } }
                          - { key: path, value: { string_value: "%REQ(:PATH)%" } }`

// goldenRequests are the logged requests: a path and a user agent. One request has no user agent.
var goldenRequests = [][2]string{
	{"/a?b=c", "curl/8.1"}, {"/q?%00%22", `a "quoted" agent, back\slash`}, {"/%C3%BC", "ünïcode ☃"}, {"/none", ""}, {"/denied", "curl/8.1"},
}

// TestEnvoyWritesGoldenLogs checks that logs of the current Envoy are read correctly. With -update
// they replace testdata.
func TestEnvoyWritesGoldenLogs(t *testing.T) {
	written := writeGolden(t)
	for i := range golden {
		g := &golden[i]
		t.Run(g.name, func(t *testing.T) {
			if *update {
				if err := os.WriteFile(g.path(), written[g.name], 0o600); err != nil {
					t.Fatal(err)
				}
			}
			g.check(t, written[g.name])
		})
	}
}

// TestGoldenLogs checks the same for the committed logs.
func TestGoldenLogs(t *testing.T) {
	for i := range golden {
		g := &golden[i]
		t.Run(g.name, func(t *testing.T) {
			log, err := os.ReadFile(g.path())
			if err != nil {
				t.Fatal(err)
			}
			g.check(t, log)
		})
	}
}

func (g *goldenLog) path() string { return filepath.Join("testdata", g.name+".log") }

// check compares the descriptors read from a log with the expected ones.
func (g *goldenLog) check(t *testing.T, log []byte) {
	t.Helper()
	if strings.Contains(g.text, "golden:nul") != bytes.Contains(log, []byte{0}) {
		t.Error("the log lacks a NUL, or has an unexpected one")
	}
	if diff := cmp.Diff(goldenKeys(g.name), g.read(t, log)); diff != "" {
		t.Errorf("the log's keys differ (-want +got):\n%s\n%q", diff, log)
	}
}

// goldenKeys returns the expected keys of a log.
func goldenKeys(name string) []string {
	if strings.HasPrefix(name, "metadata") {
		return []string{"1 recorded denied", "5 user=a\"\x00l"}
	}
	all := []string{"1 recorded denied"}
	for _, r := range goldenRequests {
		switch {
		case r[1] == "": // no descriptor
		case name == "csv" && strings.Contains(r[1], ","):
			all = append(all, "1 unreadable") // Envoy escapes nothing
		default:
			all = append(all, fmt.Sprintf("1 agent=%s,path=%s", r[1], r[0]))
		}
	}
	if name == "nul" {
		all = append(all, "5 nul=n\x00l")
	}
	slices.Sort(all)
	return all
}

// read simulates a log and returns its keys.
func (g *goldenLog) read(t *testing.T, log []byte) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(goldenRules), 0o600); err != nil {
		t.Fatal(err)
	}
	set, diagnostics, err := source.Load([]string{file}, "", descriptors.Options{})
	if err != nil || set == nil {
		t.Fatal(err, diagnostics)
	}
	o := simulate.Options{
		Rules: set, Format: g.format, Now: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), ShowValues: true,
		Logs: []accesslog.Log{{Name: "log", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(log)), nil }}},
	}
	for _, text := range g.templates {
		template, err := simulate.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		o.Templates = append(o.Templates, template)
	}
	report, err := simulate.Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v: %q", err, log)
	}
	var all []string
	if report.Bad > 0 {
		all = append(all, fmt.Sprint(report.Bad, " unreadable"))
	}
	if report.Recorded != nil {
		all = append(all, fmt.Sprint(report.Recorded.Denied, " recorded denied"))
	}
	for _, u := range report.Unknown {
		all = append(all, fmt.Sprint(u.Count, " unknown: ", u.Reason))
	}
	for _, l := range report.Rules.Limits {
		for _, k := range l.Largest {
			all = append(all, fmt.Sprint(k.Hits, " ", k.Name))
		}
	}
	slices.Sort(all)
	return all
}

// otlpCollector stores Envoy's records as a collector writes them to a file.
type otlpCollector struct {
	collector.UnimplementedLogsServiceServer

	mu      sync.Mutex
	lines   []byte
	records int
	all     chan struct{} // closed when all records have arrived
}

func (c *otlpCollector) Export(_ context.Context, req *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	line, err := protojson.Marshal(req)
	if err != nil {
		return nil, err
	}
	c.lines = append(append(c.lines, line...), '\n')
	for _, r := range req.GetResourceLogs() {
		for _, s := range r.GetScopeLogs() {
			if c.records += len(s.GetLogRecords()); c.records == len(goldenRequests) {
				close(c.all)
			}
		}
	}
	return &collector.ExportLogsServiceResponse{}, nil
}

// writeGolden runs an Envoy that writes all logs.
func writeGolden(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	logs := &otlpCollector{all: make(chan struct{})}
	server := grpc.NewServer()
	collector.RegisterLogsServiceServer(server, logs)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	var accessLog strings.Builder
	for _, g := range golden {
		if g.name != "otlp" {
			accessLog.WriteString(g.accessLog(filepath.Join(dir, g.name)))
		}
	}
	accessLog.WriteString(otlpAccessLog)
	e, err := envoy.Start(ctx, envoy.Options{
		Binary: suite.Envoy(t, root), Dir: dir, Clusters: map[string][]string{"collector": {listener.Addr().String()}},
		Bootstrap: []byte(strings.Replace(goldenBootstrap, "ACCESS_LOG", accessLog.String(), 1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Kill()
	for _, r := range goldenRequests {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.Addr("ingress"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = r[0] // without escaping
		req.Header.Set("User-Agent", r[1])
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	select {
	case <-logs.all:
	case <-ctx.Done():
		t.Fatal("timeout waiting for Envoy's log at the collector: ", ctx.Err())
	}
	if _, err := e.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	written := map[string][]byte{"otlp": logs.lines}
	for _, g := range golden {
		if g.name == "otlp" {
			continue
		}
		if written[g.name], err = os.ReadFile(filepath.Join(dir, g.name)); err != nil {
			t.Fatal(err)
		}
	}
	written["csv"] = append([]byte(csvHeader), written["csv"]...)
	return written
}
