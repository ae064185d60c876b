package answer

import (
	"context"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc/stats"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// A describe function is called with every answer, or with the error in its place. It is nil if there
// is neither tracing nor a debug log, so that a request then costs one comparison.
type describe func(ctx context.Context, x *Exchange, delay time.Duration, err error)

// newDescribe returns a function that describes each answer in its span and, at the level debug, in
// the log. The level is read here, once.
func newDescribe(tracing *telemetry.Tracing, logger *zap.Logger) describe {
	traces, logs := tracing != nil, logger.Core().Enabled(zap.DebugLevel)
	if !traces && !logs {
		return nil
	}
	// Log the first hundred of each second, and every thousandth of the others.
	sampled := telemetry.Sampled(logger, time.Second, 100, 1000)
	return func(ctx context.Context, x *Exchange, delay time.Duration, err error) {
		if traces && err == nil {
			traceDecision(ctx, x, delay)
		}
		if logs {
			logDecision(sampled, x, delay, err)
		}
	}
}

// logDecision logs a decision, or why there is none.
func logDecision(logger *zap.Logger, x *Exchange, delay time.Duration, err error) {
	if err != nil {
		if line := logger.Check(zap.DebugLevel, "no decision"); line != nil {
			line.Write(zap.Error(err))
		}
		return
	}
	if line := logger.Check(zap.DebugLevel, "decision"); line != nil {
		d := x.decision()
		line.Write(zap.String("domain", d.domain), zap.String("code", d.code), zap.Strings("rules", d.rules),
			zap.Strings("limited", d.limited), zap.Duration("held", delay))
	}
}

// decision is what traces and logs tell of an answer. It has words of the rules only, nothing that
// a client sent.
type decision struct {
	// domain is "unknown" if there are no rules for it.
	domain, code string
	// rules are those that matched, limited those that are over their limit, in the order of
	// the request.
	rules, limited []string
}

// maxToldRules bounds each list of a decision.
const maxToldRules = 32

// decision returns what the last answer decided. Call it only after an answer
// without error.
func (x *Exchange) decision() decision {
	d := decision{domain: x.plan.DomainName, code: "OK"}
	if !x.plan.KnownDomain {
		d.domain = "unknown"
	}
	if x.over {
		d.code = "OVER_LIMIT"
	}
	for i := range x.plan.Matches {
		m := &x.plan.Matches[i]
		if m.Rule == nil && !m.Override {
			continue
		}
		name := x.ruleName(m)
		if len(d.rules) < maxToldRules {
			d.rules = append(d.rules, name)
		}
		if x.statuses[i].code == codeOverLimit && len(d.limited) < maxToldRules {
			d.limited = append(d.limited, name)
		}
	}
	return d
}

// ruleName returns a matched rule's name, which the metrics have as the label rule, but without
// values of the request, and with all dots. For a list of limits it adds the one that gives the status.
func (x *Exchange) ruleName(m *descriptors.Match) string {
	if m.Rule == nil {
		return "override"
	}
	key, _, _ := m.Rule.AppendMetricKey(nil, nil)
	name := string(key)
	if m.Count == 0 {
		return name
	}
	if label := x.plan.Limits[x.statusCharge(m)].Label; label != "" {
		name += " " + label
	}
	return name
}

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
