//go:build !limiterhooks

package limiter

// pause is where tests that are built with the tag limiterhooks stop goroutines;
// see hooks_on.go. Else it is nothing, and costs nothing.
func pause(point) {}
