package leases_test

import (
	"math"
	"time"
)

// A number is the limit that is active in one descriptor: that of the rule, of a row of its table, or of the request.
type number struct {
	n, burst  int
	unit      string
	multiple  int
	unlimited bool
}

// units are the units of rules, rows and requests. An hour is the shortest, so that no window ends within a test.
var units = map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour, "month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour}

func (n number) window() time.Duration { return units[n.unit] * time.Duration(n.multiple) }

// A hold is what one request holds of one counter under one lease.
type hold struct {
	lease uint64
	hits  int // 1 for a slot
}

// A counter is what the ledger knows of one: which leases are out, and what was charged. A bucket refills while the
// test runs, so that what is used of it is known within bounds.
type counter struct {
	held     []hold
	low, top float64   // what is used, held hits excluded
	per      int       // of a bucket: the limit in whose hits low and top are
	at       time.Time // of a bucket: when low was computed
}

// heldHits returns the sum of what is held.
func (c *counter) heldHits() int {
	sum := 0
	for _, h := range c.held {
		sum += h.hits
	}
	return sum
}

// advance lets a bucket refill until the latest time at which a call can have been decided. A call may have been
// decided long before, so what was used may still be used. A clock that is set by less than a second does no harm.
func (c *counter) advance(l *limit, n number, received time.Time) {
	if l.algorithm != bucket || n.unlimited || n.n == 0 {
		return
	}
	if c.per != 0 && c.per != n.n { // half a bucket stays half a bucket
		ratio := float64(n.n) / float64(c.per)
		c.low, c.top = c.low*ratio-1e-3, c.top*ratio+1e-3
	}
	c.per = n.n
	if !c.at.IsZero() {
		refilled := (received.Sub(c.at) + time.Second).Seconds() * float64(n.n) / n.window().Seconds()
		c.low = math.Max(0, c.low-refilled)
	}
	c.at = received
}

// charge adds hits to what is used. A bucket's debt ends at one window.
func (c *counter) charge(l *limit, n number, hits int) {
	c.low, c.top = c.low+float64(hits), c.top+float64(hits)
	if l.algorithm == bucket {
		most := float64(n.burst + n.n)
		c.low, c.top = math.Min(c.low, most), math.Min(c.top, most)
	}
}

// A verdict says whether hits fit a limit. It is unknown where a bucket may or may not have refilled enough.
type verdict int

const (
	fits verdict = iota
	unknown
	full
)

// left returns the least and the greatest number of hits that may still pass.
func (c *counter) left(l *limit, n number) (least, most float64) {
	if l.algorithm == concurrency {
		free := float64(n.n - len(c.held))
		return free, free
	}
	held := float64(c.heldHits())
	return float64(n.burst) - c.top - held, float64(n.burst) - c.low - held
}

// admits decides hits, of which descriptors of the same request have taken some before.
func (c *counter) admits(l *limit, n number, taken, hits int) verdict {
	switch least, most := c.left(l, n); {
	case n.n == 0 || float64(taken+hits) > most:
		return full
	case float64(taken+hits) > least:
		return unknown
	}
	return fits
}

// remove takes a lease out and reports whether it was out.
func (c *counter) remove(lease uint64) (hold, bool) {
	for i, h := range c.held {
		if h.lease == lease {
			c.held = append(c.held[:i], c.held[i+1:]...)
			return h, true
		}
	}
	return hold{}, false
}
