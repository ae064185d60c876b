package server

import (
	"context"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const tracedRules = `
domain: edge
descriptors:
  - key: user
    descriptors:
      - key: path
        value: /api/*
        detailed_metric: true
        rate_limits:
          - {unit: hour, requests_per_unit: 1}
          - {unit: day, requests_per_unit: 100}
  - key: plan
    value: free
    rate_limit: {unit: year, requests_per_unit: 1000}
`

// newTracing returns tracing to the collector in the environment variables. It is shut down at the
// end of the test at the latest.
func newTracing(t *testing.T, s *answer.Service, o telemetry.TracingOptions, logger *zap.Logger) *telemetry.Tracing {
	t.Helper()
	tracing, err := telemetry.NewTracing(t.Context(), o, s.Metrics(), logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracing.Shutdown(context.WithoutCancel(t.Context())) })
	return tracing
}

// endWith stops the gRPC server and then tracing, because a span may end after the client has
// received the reply.
func (r *running) endWith(t *testing.T, tracing *telemetry.Tracing) {
	t.Helper()
	r.grpc.GracefulStop()
	if err := tracing.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown() = %v", err)
	}
}

// tracedRequest contains values that no span may contain.
func tracedRequest() *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "edge", Descriptors: []*rlcommon.RateLimitDescriptor{
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("user", "secret-1"), entry("path", "/api/secret-2")}},
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("plan", "free")}},
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("nothing", "secret-3")}},
		{
			Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("plan", "secret-4")},
			Limit:   &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_DAY},
		},
	}}
}

// TestSpansReachTheCollector checks that a request's span joins the caller's trace and describes
// the decision with names of the rules only.
func TestSpansReachTheCollector(t *testing.T) {
	const traceID, parentID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	headers := map[string][]string{
		"traceparent": {"traceparent", "00-" + traceID + "-" + parentID + "-01"},
		"b3":          {"b3", traceID + "-" + parentID + "-1"},
		"x-b3":        {"x-b3-traceid", traceID, "x-b3-spanid", parentID, "x-b3-sampled", "1"},
	}
	for _, protocol := range []string{"http", "grpc"} {
		for name, header := range headers {
			t.Run(protocol+" "+name, func(t *testing.T) {
				t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=ignored,zone=a")
				ServiceName := "RateLimit"
				if protocol == "grpc" {
					ServiceName = "from the environment"
					t.Setenv("OTEL_SERVICE_NAME", ServiceName)
				}
				c := newCollector(t, protocol)
				s := service(t, answer.Settings{}, tracedRules)
				tracing := newTracing(t, s, telemetry.TracingOptions{Protocol: protocol, ServiceNamespace: "ns", SamplingRate: 0}, zap.NewNop())
				r := serve(t, s, Options{Tracing: tracing})
				client := rls.NewRateLimitServiceClient(r.dial(t))
				ctx := metadata.AppendToOutgoingContext(t.Context(), header...)
				if _, err := client.ShouldRateLimit(ctx, tracedRequest()); err != nil {
					t.Fatal(err)
				}
				if _, err := client.ShouldRateLimit(ctx, tracedRequest()); err != nil { // exceeds the limit per hour
					t.Fatal(err)
				}
				r.endWith(t, tracing)
				spans := c.spans()
				if len(spans) != 2 {
					t.Fatalf("%d spans were received, want one for each request: %v", len(spans), spans)
				}
				for i, span := range spans {
					if got := hex.EncodeToString(span.GetTraceId()); got != traceID {
						t.Errorf("the span's trace is %s, want %s", got, traceID)
					}
					if got := hex.EncodeToString(span.GetParentSpanId()); got != parentID {
						t.Errorf("the span's parent is %s, want %s", got, parentID)
					}
					if span.GetKind() != tracepb.Span_SPAN_KIND_SERVER || span.GetName() != "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" {
						t.Errorf("the span is %v %s, want the span of a server's method", span.GetKind(), span.GetName())
					}
					if text := span.String(); strings.Contains(text, "secret") {
						t.Errorf("the span contains values of the request: %s", text)
					}
					got := attributes(span.GetAttributes())
					for key := range got {
						if !strings.HasPrefix(key, "sluice.") {
							delete(got, key)
						}
					}
					rules := []string{"user.path_/api/* 1/hour", "plan_free", "override"}
					want := map[string]any{"sluice.domain": "edge", "sluice.code": "OK", "sluice.rules": rules, "sluice.limited": []string{}}
					if i == 1 {
						want["sluice.code"], want["sluice.limited"] = "OVER_LIMIT", rules[:1]
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("attributes of span %d (-want +got):\n%s", i, diff)
					}
				}
				resource := c.resource()
				if resource["service.name"] != ServiceName || resource["service.namespace"] != "ns" || resource["zone"] != "a" {
					t.Errorf("the resource is %v, want %s in ns, zone a", resource, ServiceName)
				}
				if id, _ := resource["service.instance.id"].(string); len(id) != 36 {
					t.Errorf("service.instance.id is %q, want a UUID", id)
				}
			})
		}
	}
}

// TestSpansOfRateLimitRequestsOnly checks that other calls have no span, and that spans contain no
// text that a client chose.
func TestSpansOfRateLimitRequestsOnly(t *testing.T) {
	c := newCollector(t, "http")
	s := service(t, answer.Settings{}, oneRule)
	tracing := newTracing(t, s, telemetry.TracingOptions{Protocol: "http", SamplingRate: 1, ServiceName: "named", InstanceID: "i"}, zap.NewNop())
	r := serve(t, s, Options{Tracing: tracing})
	conn := r.dial(t)
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"/secret/method", "/" + answer.ServiceName + "/secret"} {
		if err := conn.Invoke(t.Context(), method, &rls.RateLimitRequest{}, &rls.RateLimitResponse{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("Invoke(%s) = %v, want UNIMPLEMENTED", method, err)
		}
	}
	client := rls.NewRateLimitServiceClient(conn)
	unknown := simpleRequest()
	unknown.Domain = "secret-domain"
	if _, err := client.ShouldRateLimit(t.Context(), unknown); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "secret"}); err == nil {
		t.Error("a request without descriptors succeeds")
	}
	r.endWith(t, tracing)
	spans := c.spans()
	if len(spans) != 2 {
		t.Fatalf("%d spans were received, want two: %v", len(spans), spans)
	}
	if got := attributes(spans[0].GetAttributes()); got["sluice.domain"] != "unknown" || got["sluice.code"] != "OK" {
		t.Errorf("attributes of an unknown domain's span are %v", got)
	}
	if got := spans[1].GetStatus(); got.GetCode() != tracepb.Status_STATUS_CODE_ERROR || got.GetMessage() != "rate limit descriptor list must not be empty" {
		t.Errorf("status of the span of an error is %v", got)
	}
	for _, span := range spans {
		if strings.Contains(span.String(), "secret") {
			t.Errorf("the span contains values of a rejected request: %v", span)
		}
		if len(span.GetParentSpanId()) != 0 {
			t.Errorf("the span has the parent %x, want none", span.GetParentSpanId())
		}
	}
	if resource := c.resource(); resource["service.name"] != "named" || resource["service.instance.id"] != "i" {
		t.Errorf("the resource is %v, want the values of the options", resource)
	}
}

func TestSampling(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
	for _, test := range []struct {
		name, sampler string
		rate          float64
		parent        string
		want          int
	}{
		{"none", "", 0, "", 0},
		{"all", "", 1, "", 1},
		{"the parent is recorded", "", 0, parent + "1", 1},
		{"the parent is not recorded", "", 1, parent + "0", 0},
		{"the variable", "always_off", 1, "", 0},
		{"a rate overrides the variable", "always_on", 0, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", test.sampler)
			c := newCollector(t, "http")
			s := service(t, answer.Settings{}, oneRule)
			tracing := newTracing(t, s, telemetry.TracingOptions{Protocol: "http", SamplingRate: test.rate}, zap.NewNop())
			r := serve(t, s, Options{Tracing: tracing})
			ctx := t.Context()
			if test.parent != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", test.parent)
			}
			if _, err := rls.NewRateLimitServiceClient(r.dial(t)).ShouldRateLimit(ctx, simpleRequest()); err != nil {
				t.Fatal(err)
			}
			r.endWith(t, tracing)
			if got := len(c.spans()); got != test.want {
				t.Errorf("%d spans were received, want %d", got, test.want)
			}
		})
	}
}

// TestCollectorThatHangs uses a collector that accepts connections and never responds. It delays
// neither requests nor the shutdown, and memory stays bounded.
func TestCollectorThatHangs(t *testing.T) {
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
			s := service(t, answer.Settings{}, oneRule)
			tracing := newTracing(t, s, telemetry.TracingOptions{Protocol: protocol, SamplingRate: 1}, zap.NewNop())
			r := serve(t, s, Options{Tracing: tracing})
			conn := r.dial(t)
			for range 5000 { // more than the queue can contain
				checkOK(t, conn)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := tracing.Shutdown(ctx); err == nil {
				t.Error("Shutdown() = nil, want an error, because no span was exported")
			}
		})
	}
}

// TestCollectorUnavailable uses a collector that is unavailable. This is logged once, and lost
// spans are counted.
func TestCollectorUnavailable(t *testing.T) {
	collector := &http.Server{ReadHeaderTimeout: time.Hour}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { collector.Close() })
	collector.Handler = http.NotFoundHandler() // an error that is not retried
	go func() { _ = collector.Serve(l) }()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	core, logs := observer.New(zap.InfoLevel)
	s := service(t, answer.Settings{}, oneRule)
	tracing := newTracing(t, s, telemetry.TracingOptions{Protocol: "http", SamplingRate: 1}, zap.New(core))
	r := serve(t, s, Options{Tracing: tracing})
	conn := r.dial(t)
	for range 3 {
		checkOK(t, conn)
	}
	r.endWith(t, tracing)
	_, metrics := get(t, "http://"+r.addr["metrics"]+"/metrics")
	if want := "\nsluice_trace_spans_dropped_total 3\n"; !strings.Contains(metrics, want) {
		t.Errorf("the metrics lack %q", want)
	}
	if got := logs.FilterMessage("tracing: failed to send spans; they are dropped").Len(); got != 1 {
		t.Errorf("the loss is logged %d times, want once", got)
	}
}
