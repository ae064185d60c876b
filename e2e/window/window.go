// Package window keeps what counts within a window of an hour or more away from the
// window's end, after which counters start anew.
package window

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// AwaitHour returns when the hour, and with it every longer window, lasts long enough for
// a test.
func AwaitHour(tb testing.TB) {
	tb.Helper()
	_ = Await(tb.Context(), Margin(), func(left time.Duration) { tb.Logf("waiting %v for the next hour", left) })
}

// Margin returns a time that is longer than any test that counts takes. On Linux it grows with the number of
// processes that wait for a processor.
func Margin() time.Duration {
	const idle, most = 20 * time.Second, 5 * time.Minute
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load) // without a number, the load is 0
	}
	each := max(1, load/float64(runtime.NumCPU()))
	return min(time.Duration(each*float64(idle)), most)
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
