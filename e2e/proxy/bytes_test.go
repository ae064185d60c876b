//go:build more

package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// oddValues are header values that are empty, contain tabs, or are not UTF-8.
var oddValues = []string{
	"", "a\tb",
	"caf\xe9", "caf\xe8", "caf\xc3\xa9", "caf\xef\xbf\xbd", // Latin-1, Latin-1, UTF-8, U+FFFD
	"\xff\xfe", "\xfe\xff", "\x80", "\x80\x80",
	"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", // overlong encodings of "/"
	"\xed\xa0\x80", "\xed\xa0\xbd\xed\xb8\x80", // a lone surrogate, and an encoded surrogate pair
	"\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", // beyond Unicode
	"\xe2\x82", "\xe2\x82\xac", "a\xe2", // truncated characters
	strings.Repeat("\xe9", 59*kib),
}

// TestNonUTF8ValuesAreCounted sends header values that are not valid in a protobuf string. They are
// counted unchanged. With all reporting enabled, Envoy, Prometheus and a collector can still read
// the output of sluice.
func TestNonUTF8ValuesAreCounted(t *testing.T) {
	t.Parallel()
	var spans, unreadable atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var export collectorpb.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &export) != nil {
			unreadable.Add(1)
		}
		for _, resource := range export.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				spans.Add(int64(len(scope.GetSpans())))
			}
		}
	}))
	t.Cleanup(collector.Close)
	limits := startSluice(t, sluice.Options{
		Args: []string{
			"--dynamic-metadata", "--decision-metadata", "--LIMIT_RESPONSE_HEADERS_ENABLED", "--retry-after-header", "--tracing",
			"--config", suite.WriteRules(t, `
domain: d
descriptors:
- { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }
- { key: detailed, detailed_metric: true, rate_limit: { unit: year, requests_per_unit: 1 } }
- { key: labelled, value_to_metric: true, rate_limit: { unit: year, requests_per_unit: 1 } }
- { key: listed, rate_limits: [ { unit: year, requests_per_unit: 1 }, { unit: day, requests_per_unit: 1 } ] }
- key: outer
  descriptors:
  - { key: inner, detailed_metric: true, rate_limit: { unit: year, requests_per_unit: 1 } }
`),
		},
		Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL},
	})
	var listeners []listener
	for _, key := range []string{"user", "detailed", "labelled", "listed", "unlimited"} {
		listeners = append(listeners, listener{name: key, routes: limitedBy(byHeader("x-user", key))})
	}
	listeners = append(listeners, listener{name: "nested", routes: limitedBy(byHeader("x-user", "outer") + ", " + byHeader("x-user", "inner"))})
	for i := range listeners {
		listeners[i].rateLimit = []string{"failure_mode_deny: false"}
	}
	p := startProxy(t, listeners, "", limits)
	window.AwaitHour(t)
	calls := 0
	for _, l := range listeners {
		for _, value := range oddValues {
			want := []int{http.StatusOK, http.StatusTooManyRequests}
			if l.name == "unlimited" {
				want[1] = http.StatusOK
			}
			for i, want := range want {
				calls++
				got, err := p.getFrom(t.Context(), l.name, "/", "x-user: "+value)
				limited := got.get("X-Ratelimit-Limit") != "" && got.get("Ratelimit-Limit") == "1"
				if err != nil || got.status != want || limited != (l.name != "unlimited") {
					t.Errorf("%s: request %d of %.20q: %d with limit %q, %v, want %d; log of sluice:\n%s",
						l.name, i+1, value, got.status, got.get("Ratelimit-Limit"), err, want, limits.Log())
				}
			}
		}
	}
	checkNoErrors(t, limits)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(suite.Metrics(t, limits))))
	if err != nil || len(families) == 0 {
		t.Errorf("/metrics: %d families, %v", len(families), err)
	}
	if _, err := limits.Stop(t.Context()); err != nil { // flushes the last spans
		t.Fatal(err)
	}
	if int(spans.Load()) != calls || unreadable.Load() != 0 {
		t.Errorf("the collector received %d spans for %d calls, and %d unreadable requests", spans.Load(), calls, unreadable.Load())
	}
}

// TestNonUTF8Metadata reads the metadata of such a value in Envoy's access log.
func TestNonUTF8Metadata(t *testing.T) {
	t.Parallel()
	p, limits := startSetup(t, setup{
		rules: "{ domain: d, descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1 } }] }",
		args:  []string{"--dynamic-metadata", "--decision-metadata"},
		listener: listener{
			routes:    `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`,
			accessLog: "ACCESS %RESPONSE_CODE% %DYNAMIC_METADATA(envoy.filters.http.ratelimit)%",
		},
	})
	window.AwaitHour(t)
	for range 2 {
		p.get(t, "/", "x-user: caf\xe9")
	}
	if _, err := p.Stop(t.Context()); err != nil { // flushes the access log
		t.Fatal(err)
	}
	var entries []string
	for line := range strings.Lines(p.Log()) {
		if strings.HasPrefix(line, "ACCESS ") {
			entries = append(entries, line)
		}
	}
	if len(entries) != 2 || !strings.HasPrefix(entries[0], "ACCESS 200 {") || !strings.HasPrefix(entries[1], "ACCESS 429 {") {
		t.Errorf("the access log has %q, want 200 and 429, both with metadata; log of sluice:\n%s", entries, limits.Log())
	}
}
