package main

import (
	"context"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// tracingFlags say whether requests are traced. OpenTelemetry's own variables say where
// spans are sent.
type tracingFlags struct {
	Tracing          bool   `group:"tracing" help:"Send a span of every rate-limit request to OpenTelemetry; OTEL_EXPORTER_OTLP_ENDPOINT and its other variables say where."`
	TracingProtocol  string `group:"tracing" enum:"http,grpc" default:"http" placeholder:"http|grpc" help:"OTLP over HTTP or gRPC. Default http."`
	TracingService   string `group:"tracing" name:"tracing-service-name" placeholder:"NAME" help:"service.name of spans. Default OTEL_SERVICE_NAME, else RateLimit."`
	TracingNamespace string `group:"tracing" name:"tracing-service-namespace" placeholder:"NAME" help:"service.namespace of spans."`
	TracingInstance  string `group:"tracing" name:"tracing-instance-id" placeholder:"ID" help:"service.instance.id of spans. Default a random UUID."`
	TracingSampling  ratio  `group:"tracing" name:"tracing-sampling-rate" default:"1" placeholder:"RATIO" help:"Share of the traces that begin here to record, 0 to 1. Other traces are recorded if their parent is. Default 1."`
}

// check checks OpenTelemetry's variables.
func (f *tracingFlags) check() error {
	if !f.Tracing {
		return nil
	}
	return telemetry.CheckTracing(f.TracingProtocol)
}

// start returns nil if tracing is off. Stop sends the last spans.
func (f *tracingFlags) start(ctx context.Context, metrics *telemetry.Metrics, logger *zap.Logger) (t *telemetry.Tracing, stop func(), err error) {
	if !f.Tracing {
		return nil, func() {}, nil
	}
	t, err = telemetry.NewTracing(ctx, telemetry.TracingOptions{
		Protocol:         f.TracingProtocol,
		ServiceName:      f.TracingService,
		ServiceNamespace: f.TracingNamespace,
		InstanceID:       f.TracingInstance,
		SamplingRate:     float64(f.TracingSampling),
	}, metrics, logger)
	if err != nil {
		return nil, nil, err
	}
	ctx = context.WithoutCancel(ctx)
	return t, func() {
		if err := t.Shutdown(ctx); err != nil {
			logger.Warn("tracing", zap.Error(err))
		}
	}, nil
}
