//go:build limiterhooks

package limiter

import "sync/atomic"

// onPause is called, unless nil, at each point that a goroutine reaches.
var onPause atomic.Pointer[func(point)]

func pause(p point) {
	if f := onPause.Load(); f != nil {
		(*f)(p)
	}
}
