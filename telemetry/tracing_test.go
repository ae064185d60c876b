package telemetry

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// TestDroppedSpansAreCounted has a collector that does not respond. Every span is either queued or
// counted as dropped.
func TestDroppedSpansAreCounted(t *testing.T) {
	release, requested := make(chan struct{}), make(chan struct{}, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requested <- struct{}{}
		<-release
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
	m := newMetrics(t)
	tracing, err := NewTracing(t.Context(), TracingOptions{Protocol: "http", SamplingRate: 1}, m, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	tracer := tracing.Provider.Tracer("test")
	for range 1000 {
		_, span := tracer.Start(t.Context(), "request")
		span.End()
	}
	<-requested
	if got := sumOf(t, m, "sluice_trace_spans_dropped_total"); got != 980 {
		t.Errorf("sluice_trace_spans_dropped_total = %v, want 980: 1000 minus a queue of 20", got)
	}
	close(release)
	if err := tracing.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if got := sumOf(t, m, "sluice_trace_spans_dropped_total"); got != 980 {
		t.Errorf("sluice_trace_spans_dropped_total = %v after the collector has recovered, want 980", got)
	}
}

func newMetrics(t *testing.T) *Metrics {
	t.Helper()
	m, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func sumOf(t *testing.T, m *Metrics, name string) (sum float64) {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, one := range f.GetMetric() {
				sum += one.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestOpenTelemetryVariablesAreChecked checks that values that the SDK cannot parse are errors,
// which contain no secret.
func TestOpenTelemetryVariablesAreChecked(t *testing.T) {
	for _, tc := range []struct{ name, value, want string }{
		{"OTEL_EXPORTER_OTLP_HEADERS", "Bearer topsecret", "OTEL_EXPORTER_OTLP_HEADERS=(not shown): must be name=value"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b,topsecret key=x", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=(not shown)"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=topsecret%zz", "OTEL_EXPORTER_OTLP_HEADERS=(not shown)"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20topsecret, x-team=a,", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "grpc|collector:4317", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "grpc|10.0.0.1:4317", `OTEL_EXPORTER_OTLP_ENDPOINT="10.0.0.1:4317": must be a URL`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "grpc|unix:///run/otel.sock", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", `OTEL_EXPORTER_OTLP_ENDPOINT="collector:4317": must be a URL`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "10.0.0.1:4317", `OTEL_EXPORTER_OTLP_ENDPOINT="10.0.0.1:4317": must be a URL`},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://", `must be a URL`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "me:topsecret@collector:4317", "OTEL_EXPORTER_OTLP_ENDPOINT=(not shown)"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://[::1]:4318/x", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "unix:///run/otel.sock", "must be a URL"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s", `OTEL_EXPORTER_OTLP_TIMEOUT="10s": must be a whole number of milliseconds`},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "x", `OTEL_BSP_MAX_QUEUE_SIZE="x": must be a whole number, 1 to 1048576`},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "0", `OTEL_BSP_MAX_QUEUE_SIZE="0"`},
	} {
		t.Run(tc.name+"="+tc.value, func(t *testing.T) {
			value, overGRPC := strings.CutPrefix(tc.value, "grpc|")
			protocol := "http"
			if overGRPC {
				protocol = "grpc"
			}
			t.Setenv(tc.name, value)
			tracing, err := NewTracing(t.Context(), TracingOptions{Protocol: protocol}, newMetrics(t), zap.NewNop())
			if err == nil {
				_ = tracing.Shutdown(context.WithoutCancel(t.Context()))
			}
			switch {
			case tc.want == "":
				if err != nil {
					t.Errorf("NewTracing() = %v, want no error", err)
				}
			case err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "topsecret"):
				t.Errorf("NewTracing() = %v, want %q", err, tc.want)
			}
		})
	}
}
