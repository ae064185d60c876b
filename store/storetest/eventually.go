package storetest

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// Eventually waits until the condition is true. If it stays false, the timeout of go test ends the
// test; its output has the description, printed once a minute.
func Eventually(tb testing.TB, description string, condition func() bool) {
	tb.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for last := clock(); !condition(); <-tick.C {
		if now := clock(); now.Sub(last) > time.Minute {
			last = now
			fmt.Fprintf(os.Stderr, "%s still waits until: %s\n", tb.Name(), description)
		}
	}
}
