package live

import "time"

// period is the time that rates cover: the last interval and the current one, five to ten seconds.
// It is shorter after the first call of advance only. Two periods with the same calls of advance
// are equal, so that rates of different things are comparable.
type period struct {
	// endedAt is the end of the last interval, and length its length. calledAt is the time of the
	// last call of advance.
	endedAt, calledAt time.Time
	length            time.Duration
}

// advance ends the interval at the time now if it has lasted for five seconds, and reports whether
// it did. It must be called each second.
func (p *period) advance(now time.Time) (ended bool) {
	passed, called := now.Sub(p.endedAt), p.calledAt
	p.calledAt = now
	switch {
	case p.endedAt.IsZero():
		passed = time.Second
	case passed < interval && passed > -interval:
		return false
	case passed < 0 || passed > 2*interval: // the clock was set, or the process was suspended
		passed = max(time.Second, called.Sub(p.endedAt))
	}
	p.endedAt, p.length = now, passed
	return true
}

// seconds returns the length of the period at the time now, at least 1.
func (p *period) seconds(now time.Time) float64 {
	return max(time.Second, max(0, now.Sub(p.endedAt))+p.length).Seconds()
}
