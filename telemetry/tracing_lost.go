package telemetry

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
)

// countedSpans counts the spans that have ended and are lost before they are sent, and
// logs when a loss begins and ends. The SDK alone would print a line for each batch, and
// silently drop what its queue cannot hold.
type countedSpans struct {
	// queue bounds under: what the SDK's queue holds, so that it drops nothing itself.
	queue int64
	// under are the spans that have ended and are neither sent nor lost.
	under  atomic.Int64
	lost   prometheus.Counter
	logger *zap.Logger
	// reporting is held while a loss begins or ends, so that the lines of the log have the order of these changes of down.
	reporting sync.Mutex
	down      atomic.Bool
	// full is true if the queue had no room since a batch was sent last.
	full atomic.Bool
}

func (c *countedSpans) lose(n int, why zap.Field) {
	c.lost.Add(float64(n))
	if c.down.Load() {
		return
	}
	c.reporting.Lock()
	defer c.reporting.Unlock()
	if !c.down.Swap(true) {
		Raise(c.logger, SpansDropped, "", why)
	}
}

// resume logs that spans are sent again, if they were not.
func (c *countedSpans) resume() {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	if c.down.Swap(false) {
		c.logger.Info("tracing: spans are sent again", Clear("", SpansDropped))
	}
}

// overflow counts a span that the queue has no room for.
func (c *countedSpans) overflow() {
	c.full.Store(true)
	c.lose(1, zap.String("error", "the queue is full: the collector does not keep up"))
}

// countingProcessor hands on what can be queued.
type countingProcessor struct {
	sdktrace.SpanProcessor
	counted *countedSpans
}

// OnEnd queues a span, or drops it.
func (p *countingProcessor) OnEnd(span sdktrace.ReadOnlySpan) {
	switch c := p.counted; {
	case !span.SpanContext().IsSampled(): // never sent
	case c.under.Add(1) > c.queue:
		c.under.Add(-1)
		c.overflow()
	default:
		p.SpanProcessor.OnEnd(span)
	}
}

// countingExporter counts what was sent and what was not.
type countingExporter struct {
	sdktrace.SpanExporter
	counted *countedSpans
}

// ExportSpans sends spans.
func (e *countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	c := e.counted
	c.under.Add(-int64(len(spans)))
	switch {
	case err != nil:
		c.lose(len(spans), zap.Error(err))
	case c.full.Swap(false): // the next batch may find the same
	default:
		c.resume()
	}
	return nil // it has been told
}
