// Package clock tells the time that a table is asked with, in half the time of
// [time.Now].
package clock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// resyncInterval is how long a clock goes by its monotonic part alone.
const resyncInterval = 100 * time.Millisecond

// Clock tells the time in half the time of [time.Now], which asks the system for
// two. It asks for the monotonic one, and ten times a second for both, to see how
// far the wall clock has moved against it. So a wall clock that was set, or a
// machine that was suspended, is seen at once if a tenth of a second has passed
// since it asked for both, else by then. Time may go back with the wall clock, which a
// [limiter.Table] bears. All methods may be called concurrently; none takes a lock that
// another waits for.
type Clock struct {
	base     time.Time
	readBoth func() (wall limiter.Time, elapsed time.Duration)

	// until is when offset is to be found anew, as time elapsed since base, and offset
	// what elapsed time falls short of the time since the Unix epoch. offset is stored
	// first and loaded last, so it is no older than until says.
	resyncAt, offset atomic.Int64
	resyncMu         sync.Mutex // only tried
}

// New returns a clock that asks the system.
func New() *Clock {
	c := &Clock{base: time.Now()} //nolint:forbidigo // this is the clock
	c.readBoth = func() (limiter.Time, time.Duration) {
		now := time.Now() //nolint:forbidigo // this is the clock
		return limiter.Time(now.UnixNano()), now.Sub(c.base)
	}
	return c
}

// FromFunc returns a clock that has both parts of the time from a function instead of the
// system, for models of machines whose clocks go wrong. Such a model asks [Clock.At].
func FromFunc(both func() (wall limiter.Time, elapsed time.Duration)) *Clock {
	c := New()
	c.readBoth = both
	return c
}

// Now returns the time, and the time elapsed since the clock was made by the same
// reading.
func (c *Clock) Now() (limiter.Time, time.Duration) {
	elapsed := time.Since(c.base)
	return c.At(elapsed), elapsed
}

// Elapsed returns the time elapsed since the clock was made.
func (c *Clock) Elapsed() time.Duration { return time.Since(c.base) }

// ElapsedAt returns what [Clock.Elapsed] will return at t.
func (c *Clock) ElapsedAt(t time.Time) time.Duration { return t.Sub(c.base) }

// At returns the time at which so much had elapsed, which is now.
func (c *Clock) At(elapsed time.Duration) limiter.Time {
	if int64(elapsed) >= c.resyncAt.Load() {
		return c.resync()
	}
	return limiter.Time(int64(elapsed) + c.offset.Load())
}

// resync is At by both parts of the system's clock. One caller at a time keeps what
// it found; the others do without.
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
