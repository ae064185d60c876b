//go:build more

package proxy_test

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// TestSpansJoinEnvoysTrace follows a trace from the client through Envoy to sluice.
func TestSpansJoinEnvoysTrace(t *testing.T) {
	t.Parallel()
	received := make(chan *tracepb.Span, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var export collectorpb.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &export) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, resource := range export.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					received <- span
				}
			}
		}
	}))
	t.Cleanup(collector.Close)
	limits := startSluice(t, sluice.Options{
		Args: []string{"--tracing", "--config", suite.WriteRules(t, "{domain: d, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 9}}]}")},
		Env:  []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL},
	})
	p := startProxy(t, []listener{{
		routes: `[{ match: { prefix: / }, route: { rate_limits: ` + byUser + ` } }]`,
		// Envoy's spans go to the backend, which ignores them.
		tracing: `
provider:
  name: envoy.tracers.opentelemetry
  typed_config:
    "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
    service_name: envoy
    http_service: { http_uri: { uri: "http://backend/v1/traces", cluster: backend, timeout: 1s } }
`,
	}}, "", limits)
	const traceID, clientID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	if got := p.get(t, "/", "x-user: al", "traceparent: 00-"+traceID+"-"+clientID+"-01"); got.status != http.StatusOK {
		t.Fatalf("the status is %d, want 200", got.status)
	}
	if _, err := limits.Stop(t.Context()); err != nil { // flushes the last spans
		t.Fatal(err)
	}
	if len(received) != 1 {
		t.Fatalf("%d spans were received, want one", len(received))
	}
	span := <-received
	if got := hex.EncodeToString(span.GetTraceId()); got != traceID {
		t.Errorf("the span's trace is %s, want the client's, %s", got, traceID)
	}
	if got := hex.EncodeToString(span.GetParentSpanId()); got == "" || got == clientID {
		t.Errorf("the span's parent is %q, want a span of Envoy's", got)
	}
}
