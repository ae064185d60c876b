//go:build limiterhooks

package limiter

// OnPause makes every goroutine call f at its points, with whether it holds a lock there. nil
// removes f.
func OnPause(f func(locked bool)) {
	if f == nil {
		onPause.Store(nil)
		return
	}
	g := func(p point) { f(p == beforeSlotDead || p == afterSlotDead || p == whileCountersMove) }
	onPause.Store(&g)
}
