//go:build limiterhooks

package limiter

// OnPause makes every goroutine call f at the points where another may do most
// harm, and says whether it holds a lock there. nil ends it.
func OnPause(f func(locked bool)) {
	if f == nil {
		onPause.Store(nil)
		return
	}
	g := func(p point) { f(p == beforeSlotDead || p == afterSlotDead || p == whileCountersMove) }
	onPause.Store(&g)
}
