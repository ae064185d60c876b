package storetest

import (
	"testing"
	"time"
)

// patience bounds how long [Eventually], and a command to a server, wait. It only ends a test that
// hangs.
const patience = 3 * time.Minute

// Eventually waits until the condition is true. If it stays false for [patience], the test fails
// with the given description.
func Eventually(tb testing.TB, description string, condition func() bool) {
	tb.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-end.C:
			tb.Fatalf("timed out after %v; not true: %s", patience, description)
		}
	}
}
