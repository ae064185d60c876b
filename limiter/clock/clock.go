// Package clock provides the time for decisions of a [limiter.Table] at half the cost of
// [time.Now].
package clock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// resyncInterval is how long a clock uses only the monotonic clock.
const resyncInterval = 100 * time.Millisecond

// A Clock returns the time at half the cost of [time.Now], which reads two system clocks. It reads
// only the monotonic clock, and every 100 ms both clocks, to update the offset of the wall clock. A
// change of the wall clock or a suspension of the machine is thus noticed within 100 ms. Time may
// go backwards with the wall clock, which a [limiter.Table] supports. All methods may be called
// concurrently and never block on a lock.
type Clock struct {
	base     time.Time
	readBoth func() (wall limiter.Time, elapsed time.Duration)

	// resyncAt is when offset must be updated, as time elapsed since base. offset is the difference
	// between the time since the Unix epoch and the elapsed time. offset is stored first and loaded
	// last, so it is never older than resyncAt implies.
	resyncAt, offset atomic.Int64
	resyncMu         sync.Mutex // used with TryLock only
}

// New returns a clock that reads the system clocks.
func New() *Clock {
	c := &Clock{base: time.Now()} //nolint:forbidigo // this is the clock
	c.readBoth = func() (limiter.Time, time.Duration) {
		now := time.Now() //nolint:forbidigo // this is the clock
		return limiter.Time(now.UnixNano()), now.Sub(c.base)
	}
	return c
}

// FromFunc returns a clock that reads wall and elapsed time from a function, to simulate clock
// faults. The simulation must use [Clock.At] and [Clock.ReadElapsed].
func FromFunc(both func() (wall limiter.Time, elapsed time.Duration)) *Clock {
	c := New()
	c.readBoth = both
	return c
}

// Now returns the time and the time elapsed since the clock was created, from the same reading.
func (c *Clock) Now() (limiter.Time, time.Duration) {
	elapsed := time.Since(c.base)
	return c.At(elapsed), elapsed
}

// Elapsed returns the time since the clock was created.
func (c *Clock) Elapsed() time.Duration { return time.Since(c.base) }

// ReadElapsed is Elapsed, but reads both clocks, and with [FromFunc] returns that of the function.
func (c *Clock) ReadElapsed() time.Duration {
	_, elapsed := c.readBoth()
	return elapsed
}

// ElapsedAt returns the value of [Clock.Elapsed] at t.
func (c *Clock) ElapsedAt(t time.Time) time.Duration { return t.Sub(c.base) }

// At returns the current time, given the elapsed time.
func (c *Clock) At(elapsed time.Duration) limiter.Time {
	if int64(elapsed) >= c.resyncAt.Load() {
		return c.resync()
	}
	return limiter.Time(int64(elapsed) + c.offset.Load())
}

// WallOffset returns the offset of the wall clock to the elapsed time in the latest result of
// [Clock.At].
func (c *Clock) WallOffset() time.Duration { return time.Duration(c.offset.Load()) }

// resync returns the wall clock time and updates the offset. If another caller is updating it,
// resync only reads the wall clock.
func (c *Clock) resync() limiter.Time {
	if !c.resyncMu.TryLock() {
		wall, _ := c.readBoth()
		return wall
	}
	defer c.resyncMu.Unlock()
	wall, elapsed := c.readBoth()
	c.offset.Store(int64(wall) - int64(elapsed))
	c.resyncAt.Store(int64(elapsed + resyncInterval))
	return wall
}
