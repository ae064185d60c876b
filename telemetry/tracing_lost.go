package telemetry

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
)

// countedSpans counts the spans that are dropped after they ended, and logs the start and the end
// of a loss. The SDK itself prints a line for each batch, and silently drops spans that do not fit
// in its queue.
type countedSpans struct {
	// queue bounds pending by the size of the SDK's queue, so that the SDK drops nothing.
	queue int64
	// pending is the number of ended spans that are neither sent nor dropped.
	pending atomic.Int64
	lost    prometheus.Counter
	logger  *zap.Logger
	// reporting is locked while down changes, so that the lines of the log are in the order of the
	// changes.
	reporting sync.Mutex
	down      atomic.Bool
	// full is true if the queue was full since the last batch was sent.
	full atomic.Bool
}

func (c *countedSpans) recordLost(n int, why zap.Field) {
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
		c.logger.Info("tracing: sending spans again", Clear("", SpansDropped))
	}
}

// recordOverflow counts a span that does not fit in the queue.
func (c *countedSpans) recordOverflow() {
	c.full.Store(true)
	c.recordLost(1, zap.String("error", "the queue is full: the collector does not keep up"))
}

// countingProcessor passes on the spans that fit in the queue.
type countingProcessor struct {
	sdktrace.SpanProcessor
	counted *countedSpans
}

// OnEnd queues a span, or drops it.
func (p *countingProcessor) OnEnd(span sdktrace.ReadOnlySpan) {
	switch c := p.counted; {
	case !span.SpanContext().IsSampled(): // never sent
	case c.pending.Add(1) > c.queue:
		c.pending.Add(-1)
		c.recordOverflow()
	default:
		p.SpanProcessor.OnEnd(span)
	}
}

// countingExporter counts the spans that were sent and those that were not.
type countingExporter struct {
	sdktrace.SpanExporter
	counted *countedSpans
}

// ExportSpans sends spans.
func (e *countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	c := e.counted
	c.pending.Add(-int64(len(spans)))
	switch {
	case err != nil:
		c.recordLost(len(spans), zap.Error(err))
	case c.full.Swap(false): // the next batch may fail too
	default:
		c.resume()
	}
	return nil // the error has been logged
}
