package telemetry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// TracingOptions are the settings of envoyproxy/ratelimit, with flags as tags. All others, such as
// the endpoint, are the OTEL_ variables of OpenTelemetry's SDK.
type TracingOptions struct {
	Protocol         string `name:"TRACING_EXPORTER_PROTOCOL" hidden:"" enum:"http,grpc" default:"http" placeholder:"http|grpc" help:"OTLP protocol: http or grpc."`
	ServiceName      string `name:"TRACING_SERVICE_NAME" hidden:"" placeholder:"NAME" help:"Attribute service.name of spans. Default: OTEL_SERVICE_NAME, or RateLimit."`
	ServiceNamespace string `name:"TRACING_SERVICE_NAMESPACE" hidden:"" placeholder:"NAME" help:"Attribute service.namespace of spans."`
	InstanceID       string `name:"TRACING_SERVICE_INSTANCE_ID" hidden:"" placeholder:"ID" help:"Attribute service.instance.id of spans. Default: a random UUID."`
	// At 1, OTEL_TRACES_SAMPLER applies if it is set.
	SamplingRate float64 `name:"TRACING_SAMPLING_RATE" hidden:"" type:"ratio" default:"1" placeholder:"RATIO" help:"Fraction of new traces to sample, 0 to 1. Other traces are sampled if their parent is."`
}

// Tracing creates spans and sends them to a collector. Its fields may be used concurrently. Spans
// that cannot be sent are dropped and counted; nothing waits for the collector.
type Tracing struct {
	Provider   trace.TracerProvider
	Propagator propagation.TextMapPropagator
	// Headers are the request headers that Propagator reads, in lower case.
	Headers []string

	provider *sdktrace.TracerProvider
	exporter sdktrace.SpanExporter
}

// NewTracing returns a Tracing that is active until [Tracing.Shutdown]. It does not wait for the
// collector.
func NewTracing(ctx context.Context, o TracingOptions, metrics *Metrics, logger *zap.Logger) (*Tracing, error) {
	if err := CheckTracing(o.Protocol); err != nil {
		return nil, err
	}
	queue, err := spanQueue()
	if err != nil {
		return nil, err
	}
	client := otlptracehttp.NewClient()
	if o.Protocol == "grpc" {
		client = otlptracegrpc.NewClient()
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("tracing", zap.Error(err)) }))
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("otlp exporter: %w", err)
	}
	described, err := describe(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("describe this process: %w", err)
	}
	counted := &countedSpans{
		queue: int64(queue), logger: logger,
		lost: metrics.counter("sluice_trace_spans_dropped_total", "Spans that were dropped because they could not be sent to the collector."),
	}
	batches := sdktrace.NewBatchSpanProcessor(&countingExporter{exporter, counted}, sdktrace.WithMaxQueueSize(queue))
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithSpanProcessor(&countingProcessor{batches, counted}),
		sdktrace.WithResource(described),
	}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" || o.SamplingRate < 1 {
		options = append(options,
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.SamplingRate))))
	}
	provider := sdktrace.NewTracerProvider(options...)
	return &Tracing{
		Provider: provider,
		Propagator: propagation.NewCompositeTextMapPropagator(
			propagation.TraceContext{}, b3.New(), propagation.Baggage{}),
		Headers: []string{
			"traceparent", "tracestate", "baggage", "b3",
			"x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags",
		},
		provider: provider,
		exporter: exporter,
	}, nil
}

// describe returns the resource attributes that the SDK finds for this process, with those of o.
func describe(ctx context.Context, o TracingOptions) (*resource.Resource, error) {
	var given []attribute.KeyValue
	for _, a := range []attribute.KeyValue{
		semconv.ServiceName(o.ServiceName), semconv.ServiceNamespace(o.ServiceNamespace), semconv.ServiceInstanceID(o.InstanceID),
	} {
		if a.Value.AsString() != "" {
			given = append(given, a)
		}
	}
	return resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("RateLimit"), semconv.ServiceInstanceID(newUUID())),
		resource.WithFromEnv(),
		resource.WithAttributes(given...))
}

// newUUID returns a random UUID, of version 4 of RFC 9562.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// shutdownTimeout bounds the time to send the last spans.
const shutdownTimeout = 5 * time.Second

// Shutdown sends the spans that have ended, for at most five seconds.
func (t *Tracing) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	// The provider shuts the exporter down too, except after a timeout. This cancels its requests
	// then.
	if err := errors.Join(t.provider.Shutdown(ctx), t.exporter.Shutdown(ctx)); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}
