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

// A describeFunc is called with every answer or error. It is nil without tracing and debug logging,
// so that a request then costs one comparison.
type describeFunc func(ctx context.Context, x *Exchange, delay time.Duration, err error)

// newDescriber returns a function that adds each decision to its span and, if the logger is at
// level debug now, to the log.
func newDescriber(tracing *telemetry.Tracing, logger *zap.Logger) describeFunc {
	traces := tracing != nil
	logs := logger.Core().Enabled(zap.DebugLevel)
	if !traces && !logs {
		return nil
	}
	// In each second, log the first hundred lines, and then every thousandth.
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

// logDecision logs a decision or an error.
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
			zap.Strings("limited", d.limited), zap.Duration("delay", delay))
	}
}

// decision describes an answer in traces and logs. It contains names of the rules only, nothing
// that a client sent.
type decision struct {
	// domain is "unknown" if no rules have it.
	domain, code string
	// rules contains the matched rules, and limited the rules over their limit, in the order of the
	// request.
	rules, limited []string
}

// maxDescribedRules bounds each list of a decision.
const maxDescribedRules = 32

// decision describes the last answer. It must only be called after an answer without error.
func (x *Exchange) decision() decision {
	d := decision{domain: x.plan.DomainName, code: "OK"}
	if !x.plan.KnownDomain {
		d.domain = "unknown"
	}
	if x.overLimit {
		d.code = "OVER_LIMIT"
	}
	for i := range x.plan.Matches {
		m := &x.plan.Matches[i]
		if m.Rule == nil && !m.Override {
			continue
		}
		name := string(x.appendRuleName(nil, i))
		if len(d.rules) < maxDescribedRules {
			d.rules = append(d.rules, name)
		}
		if x.statuses[i].code == codeOverLimit && len(d.limited) < maxDescribedRules {
			d.limited = append(d.limited, name)
		}
	}
	return d
}

// appendRuleName appends the value of the metric label rule for the rule of match i, but without values
// of the request and with all dots. For a list of limits, the label of the limit that determines
// the status follows.
func (x *Exchange) appendRuleName(b []byte, i int) []byte {
	m := &x.plan.Matches[i]
	b = appendRuleKey(b, m)
	if m.Count == 0 {
		return b
	}
	return appendLabel(b, x.plan.Limits[x.statuses[i].charge])
}

// appendRuleKey appends the metric key of a matched rule to the empty b.
func appendRuleKey(b []byte, m *descriptors.Match) []byte {
	if m.Rule == nil {
		return append(b, "override"...)
	}
	b, _, _ = m.Rule.AppendMetricKey(b, nil)
	return b
}

// appendLabel appends the label that a limit has in a list.
func appendLabel(b []byte, l *descriptors.Limit) []byte {
	if l.Label != "" {
		b = append(append(b, ' '), l.Label...)
	}
	return b
}

// NewTracer returns a handler that creates a span for each rate-limit request. Health checks,
// reflection and unknown methods, whose names the client chooses, have no spans.
func NewTracer(t *telemetry.Tracing) stats.Handler {
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.Provider),
		otelgrpc.WithPropagators(t.Propagator),
		otelgrpc.WithMeterProvider(noop.NewMeterProvider()), // Prometheus has the metrics
		otelgrpc.WithFilter(filters.FullMethodName("/"+ServiceName+"/ShouldRateLimit")),
	)
}

// traceDecision adds the decision to the request's span, if it is recorded.
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
		span.SetAttributes(attribute.Float64("sluice.delay_seconds", delay.Seconds()))
	}
}
