//go:build limiterhooks

package limiter_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// tableTurn makes the table's histories run in turns, now and then in parallel
// with a chance for others at each point.
func tableTurn(tb testing.TB, r *rand.Rand) *turn {
	tb.Helper()
	if r.IntN(4) == 0 {
		limiter.OnPause(func(bool) { runtime.Gosched() })
		return nil
	}
	t := &turn{}
	limiter.OnPause(func(locked bool) {
		if !locked { // the others would wait for a goroutine that is not theirs to wake
			t.step()
		}
	})
	tb.Cleanup(func() { limiter.OnPause(nil) })
	return t
}
