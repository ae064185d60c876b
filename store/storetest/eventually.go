package storetest

import (
	"testing"
	"time"
)

// patience bounds how long [Eventually] waits. It ends a test that hangs and decides nothing else.
const patience = 3 * time.Minute

// Eventually asks until the answer is yes. If it stays no for [patience], the test ends and says
// what was awaited.
func Eventually(tb testing.TB, awaited string, yes func() bool) {
	tb.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-end.C:
			tb.Fatalf("after %v still no: %s", patience, awaited)
		}
	}
}
