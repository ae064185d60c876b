// Package window keeps what counts within a window of an hour or more away from the
// window's end, after which counters start anew.
package window

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/process"
)

// AwaitHour returns when the hour, and with it every longer window, lasts long enough for
// a test.
func AwaitHour(tb testing.TB) {
	tb.Helper()
	_ = Await(tb.Context(), Margin(), func(left time.Duration) { tb.Logf("waiting %v for the next hour", left) })
}

// Margin returns a time that is longer than any test that counts takes.
func Margin() time.Duration { return 5 * process.Stretch(4*time.Second) }

// Await returns when the hour lasts longer than margin. If it must wait for the next hour
// it calls say first. It returns an error if ctx ends before.
func Await(ctx context.Context, margin time.Duration, say func(left time.Duration)) error {
	now := time.Now()
	left := now.Truncate(time.Hour).Add(time.Hour).Sub(now)
	if left > margin {
		return nil
	}
	say(left)
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
