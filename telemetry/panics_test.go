package telemetry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestPanicLogIsRateLimited reports many panics. All are counted, and one in ten seconds is logged.
func TestPanicLogIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.ErrorLevel)
		metrics, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		panics := NewPanics(metrics.Panics, zap.New(core))
		for range 250 { // 25 seconds
			panics.Report("a bug")
			time.Sleep(100 * time.Millisecond)
		}
		if n := logs.FilterMessage("panic in a request; more within ten seconds are only counted").Len(); n != 3 {
			t.Errorf("%d lines are logged in 25 seconds, want 3", n)
		}
		if got := testutil.ToFloat64(metrics.Panics); got != 250 {
			t.Errorf("%v panics are counted, want 250", got)
		}
	})
}
