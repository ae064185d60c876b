//go:build limiterhooks

package limiter_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// tableTurn makes the histories of a table run in turns, and sometimes in parallel with yields at
// each point.
func tableTurn(tb testing.TB, r *rand.Rand) *turn {
	tb.Helper()
	if r.IntN(4) == 0 {
		limiter.OnPause(func(bool) { runtime.Gosched() })
		return nil
	}
	t := &turn{}
	limiter.OnPause(func(locked bool) {
		if !locked { // otherwise others would wait for a lock whose owner does not run
			t.step()
		}
	})
	tb.Cleanup(func() { limiter.OnPause(nil) })
	return t
}
