package main

import (
	"context"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// tracingFlags configures tracing. The variables of OpenTelemetry configure the exporter.
type tracingFlags struct {
	Tracing bool `help:"Export a span of every rate limit request over OTLP. OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of OpenTelemetry configure the exporter."`

	telemetry.TracingOptions `embed:""`
}

// check checks the variables of OpenTelemetry.
func (f *tracingFlags) check() error {
	if !f.Tracing {
		return nil
	}
	return telemetry.CheckTracing(f.Protocol)
}

// start returns nil if tracing is off. The caller must call stop, which sends the last spans.
func (f *tracingFlags) start(
	ctx context.Context, metrics *telemetry.Metrics, logger *zap.Logger,
) (t *telemetry.Tracing, stop func(), err error) {
	if !f.Tracing {
		return nil, func() {}, nil
	}
	t, err = telemetry.NewTracing(ctx, f.TracingOptions, metrics, logger)
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
