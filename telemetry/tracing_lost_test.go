package telemetry

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// fakeExporter is an exporter that returns err.
type fakeExporter struct{ err error }

func (e fakeExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return e.err }
func (fakeExporter) Shutdown(context.Context) error                               { return nil }

// TestSlowCollectorIsLoggedOnce checks that a collector that does not keep up is logged once, not
// for each batch. An outage ends with the first batch that is sent.
func TestSlowCollectorIsLoggedOnce(t *testing.T) {
	m, logger, lines := watchedMetrics(t)
	c := &countedSpans{lost: m.counter("lost_total", "Lost spans."), logger: logger}
	good, bad := &countingExporter{fakeExporter{}, c}, &countingExporter{fakeExporter{errors.New("away")}, c}
	export := func(e *countingExporter) {
		if err := e.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 1)); err != nil {
			t.Error(err)
		}
	}
	expect := func(when string, n int, codes ...string) {
		t.Helper()
		expectCodes(t, m.Conditions, time.Now(), codes...)
		if got := lines.Len(); got != n {
			t.Errorf("%s the log has %d lines, want %d", when, got, n)
		}
	}
	for range 10 {
		c.recordOverflow()
		export(good)
	}
	expect("while the queue is full", 1, "spans_dropped")
	export(good)
	expect("after a batch without a loss", 2)
	export(bad)
	expect("while the collector is away", 3, "spans_dropped")
	export(good)
	expect("when it is back", 4)
}

// duringRaise is a core that calls a function before a line raises a condition.
type duringRaise struct {
	zapcore.Core

	call func()
}

func (c duringRaise) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return checked.AddCore(entry, c)
}

func (c duringRaise) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if entry.Message == SpansDropped.Define().Sentence {
		c.call()
	}
	return c.Core.Write(entry, fields)
}

// TestSpanLossEndsAfterItBegan sends batches while the line about a loss is being logged. The
// condition must start before it ends.
func TestSpanLossEndsAfterItBegan(t *testing.T) {
	m, logger, _ := watchedMetrics(t)
	c := &countedSpans{lost: m.counter("lost_total", "Lost spans.")}
	sent := make(chan error, 1)
	c.logger = logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return duringRaise{core, func() {
			go func() {
				e := &countingExporter{fakeExporter{}, c}
				sent <- errors.Join(e.ExportSpans(t.Context(), nil), e.ExportSpans(t.Context(), nil))
			}()
			for range 1000 { // enough for the goroutine, unless it waits for this line
				runtime.Gosched()
			}
		}}
	}))
	c.recordOverflow()
	if err := <-sent; err != nil {
		t.Error(err)
	}
	expectCodes(t, m.Conditions, time.Now())
}
