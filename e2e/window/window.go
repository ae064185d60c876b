// Package window keeps tests that count within a window of an hour or more away
// from its end, after which counters start anew.
package window

import (
	"testing"
	"time"
)

// margin is longer than any test takes that counts.
const margin = 20 * time.Second

// AwaitHour returns when the hour, and with it every longer window, lasts long
// enough for a test.
func AwaitHour(tb testing.TB) {
	tb.Helper()
	now := time.Now()
	left := now.Truncate(time.Hour).Add(time.Hour).Sub(now)
	if left > margin {
		return
	}
	tb.Logf("waiting %v for the next hour", left)
	select {
	case <-time.After(left):
	case <-tb.Context().Done():
	}
}
