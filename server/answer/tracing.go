package answer

import (
	"context"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// NewTracer makes a span for each rate-limit request. Health checks and reflection have none.
// Neither have calls of unknown methods: their names would be a stranger's.
func NewTracer(t *telemetry.Tracing) stats.Handler {
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.Provider),
		otelgrpc.WithPropagators(t.Propagator),
		otelgrpc.WithMeterProvider(noop.NewMeterProvider()), // Prometheus has them
		otelgrpc.WithFilter(filters.FullMethodName("/"+ServiceName+"/ShouldRateLimit")),
	)
}

// traceDecision adds what was decided to the request's span, if it is recorded.
func traceDecision(ctx context.Context, x *Exchange, delay time.Duration) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	d := x.decision()
	span.SetAttributes(
		attribute.String("sluice.domain", d.domain),
		attribute.String("sluice.code", d.code),
		attribute.StringSlice("sluice.rules", d.rules),
		attribute.StringSlice("sluice.limited", d.limited),
	)
	if delay > 0 {
		span.SetAttributes(attribute.Float64("sluice.held_seconds", delay.Seconds()))
	}
}
