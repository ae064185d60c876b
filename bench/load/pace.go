package load

import (
	"context"
	"runtime"
	"time"
)

// pace sends the due time of each call when it is due, then closes due.
func pace(ctx context.Context, due chan<- time.Time, start time.Time, rate float64, d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(due)
	wakeOnTime()
	for i := 0; ctx.Err() == nil; i++ {
		offset := time.Duration(float64(i) / rate * float64(time.Second))
		if offset >= d {
			return
		}
		t := start.Add(offset)
		if wait := time.Until(t); wait > 0 {
			sleep(wait)
		}
		due <- t
	}
}
