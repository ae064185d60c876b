package must

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// Eventually waits until the condition is true. Only the timeout of go test ends a longer wait, so
// the description is printed about once a minute.
func Eventually(tb testing.TB, description string, condition func() bool) {
	tb.Helper()
	const aboutAMinute = 60_000
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 1; !condition(); n++ {
		<-tick.C
		if n%aboutAMinute == 0 {
			fmt.Fprintf(os.Stderr, "%s still waits until %s\n", tb.Name(), description)
		}
	}
}
