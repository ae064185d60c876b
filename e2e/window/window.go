// Package window keeps what counts within a window of an hour or more away from the
// window's end, after which counters start anew.
package window

import (
	"context"
	"testing"
	"time"
)

// AwaitHour returns when the hour, and with it every longer window, lasts long enough for
// a test.
func AwaitHour(tb testing.TB) {
	tb.Helper()
	const margin = 20 * time.Second // longer than any test that counts takes
	_ = Await(tb.Context(), margin, func(left time.Duration) { tb.Logf("waiting %v for the next hour", left) })
}

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
