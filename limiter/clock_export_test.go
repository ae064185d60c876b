package limiter

import "time"

// NewClockOf returns a clock that has its readings of the system from both.
func NewClockOf(both func() (wall Time, elapsed time.Duration)) *Clock {
	c := NewClock()
	c.both = both
	return c
}

// At is Now once so much has elapsed.
func (c *Clock) At(elapsed time.Duration) Time { return c.at(elapsed) }
