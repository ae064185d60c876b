//go:build limiterhooks

package limiter

import "testing"

// TestLeaseReturnedConcurrently returns a lease in four calls, each of which starts at the same
// moment of the one before. All costs together would exceed the maximum debt of a bucket, and hits
// would be lost.
func TestLeaseReturnedConcurrently(t *testing.T) {
	const others, cost, calls = 6, 4, 4
	for name, p := range reserving(others+cost, 1, false) {
		for moment, reached := 1, true; reached; moment++ {
			g := newBudget(t, p)
			g.settleLease(benchNow, g.reserve(benchNow, others), others)
			lease, settled := g.reserve(benchNow, cost), uint64(0)
			var left []int // how many moments each call is before the one at which the next starts
			settle := func() {
				left = append(left, moment)
				settled += g.settleLease(benchNow, lease, -1)
				reached = left[len(left)-1] <= 0
				left = left[:len(left)-1]
			}
			f := func(at point) {
				if at == whileCellsHeld || at == beforeSlotDead || at == afterSlotDead || at == whileCountersMove {
					return // a lock is held
				}
				if left[len(left)-1]--; left[len(left)-1] == 0 && len(left) < calls {
					settle()
				}
			}
			onPause.Store(&f)
			settle()
			onPause.Store(nil)
			if used := g.used(benchNow); used != others+cost || settled != cost {
				t.Errorf("%s, moment %d: %d hits are used and the lease settled %d, want %d and %d",
					name, moment, used, settled, others+cost, cost)
			}
		}
	}
}
