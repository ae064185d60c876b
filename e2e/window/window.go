// Package window keeps tests that count hits in windows of an hour or more away from the end of a
// window, at which counters reset.
package window

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/process"
)

// AwaitHour waits until the hour, and with it every longer window, lasts long enough for a test.
func AwaitHour(tb testing.TB) {
	tb.Helper()
	_ = Await(tb.Context(), Margin(), func(left time.Duration) { tb.Logf("waiting %v for the next hour", left) })
}

// Margin returns a duration that is longer than any test that counts hits.
func Margin() time.Duration { return 5 * process.ScaleByLoad(4*time.Second) }

// Await waits until the current hour lasts longer than margin. Before a wait it calls report. It
// returns an error if ctx ends first.
func Await(ctx context.Context, margin time.Duration, report func(left time.Duration)) error {
	now := time.Now()
	left := now.Truncate(time.Hour).Add(time.Hour).Sub(now)
	if left > margin {
		return nil
	}
	report(left)
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
