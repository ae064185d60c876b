package simulated_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
}

// nulText is a format with a value that contains a NUL.
const nulText = `%START_TIME% %RESPONSE_CODE% "%REQ(USER-AGENT)%" <%DYNAMIC_METADATA(golden:nul)%> %REQ(:PATH)%`

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
`

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
		if r[1] != "" {
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
		for _, k := range l.TopKeys {
			all = append(all, fmt.Sprint(k.Hits, " ", k.Name))
		}
	}
	slices.Sort(all)
	return all
}

// writeGolden runs an Envoy that writes all logs.
func writeGolden(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	var accessLog strings.Builder
	for _, g := range golden {
		accessLog.WriteString(g.accessLog(filepath.Join(dir, g.name)))
	}
	e, err := envoy.Start(ctx, envoy.Options{
		Binary: suite.Envoy(t, root), Dir: dir,
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
	if _, err := e.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	written := map[string][]byte{}
	for _, g := range golden {
		if written[g.name], err = os.ReadFile(filepath.Join(dir, g.name)); err != nil {
			t.Fatal(err)
		}
	}
	return written
}
