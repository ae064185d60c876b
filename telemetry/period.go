package telemetry

import "time"

// Interval is the time between two ends of intervals of a [Period].
const Interval = 5 * time.Second

// Period is the time that rates cover: the last interval and the current one, five to ten seconds.
// It is shorter after the first call of Advance only. Two periods with the same calls of Advance
// are equal, so that rates of different things are comparable.
type Period struct {
	// endedAt is the end of the last interval, and length its length.
	endedAt time.Time
	length  time.Duration
	// CalledAt is the time of the last call of Advance.
	CalledAt time.Time
}

// Advance ends the interval at the time now if it has lasted for [Interval], and reports whether it
// did. It must be called each second.
func (p *Period) Advance(now time.Time) (ended bool) {
	passed := now.Sub(p.endedAt)
	called := p.CalledAt
	p.CalledAt = now
	switch {
	case p.endedAt.IsZero():
		passed = time.Second
	case passed < Interval && passed > -Interval:
		return false
	case passed < 0 || passed > 2*Interval: // the clock was set, or the process was suspended
		passed = max(time.Second, called.Sub(p.endedAt))
	}
	p.endedAt = now
	p.length = passed
	return true
}

// Seconds returns the length of the period at the time now, at least 1.
func (p *Period) Seconds(now time.Time) float64 {
	return max(time.Second, max(0, now.Sub(p.endedAt))+p.length).Seconds()
}
