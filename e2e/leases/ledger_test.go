package leases_test

import (
	"math"
	"time"
)

// number is the limit that applies to a descriptor: that of the rule, of a row of its table, or of
// the request.
type number struct {
	n, burst  int
	unit      string
	multiple  int
	unlimited bool
}

// units are the units of rules, rows and requests. An hour is the shortest, so that no window ends
// within a test.
var units = map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour, "month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour}

func (n number) window() time.Duration { return units[n.unit] * time.Duration(n.multiple) }

// hold is the permit or the reserved hits of one request in a counter, under one lease.
type hold struct {
	lease uint64
	hits  int // 1 for a permit
}

// counter is the ledger of a counter: its active leases and its charges. A bucket refills while the
// test runs, so the ledger only has bounds for its used hits.
type counter struct {
	held     []hold
	low, top float64   // used hits, without held ones
	per      int       // for a bucket: the limit whose hits are the unit of low and top
	at       time.Time // for a bucket: when low was computed
}

// heldHits returns the sum of held hits.
func (c *counter) heldHits() int {
	sum := 0
	for _, h := range c.held {
		sum += h.hits
	}
	return sum
}

// advance refills a bucket until the latest time at which a call can have been decided. The call
// may have been decided long before, so the refilled hits may still be used. A clock adjustment of
// less than a second is harmless.
func (c *counter) advance(l *limit, n number, received time.Time) {
	if l.algorithm != bucket || n.unlimited || n.n == 0 {
		return
	}
	if c.per != 0 && c.per != n.n { // a bucket that is half full stays half full
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

// charge adds used hits. A bucket's debt is limited to one window.
func (c *counter) charge(l *limit, n number, hits int) {
	c.low, c.top = c.low+float64(hits), c.top+float64(hits)
	if l.algorithm == bucket && hits > 0 {
		most := float64(n.burst + n.n)
		c.low, c.top = math.Min(c.low, most), math.Min(c.top, most)
	}
}

// verdict is whether hits fit a limit. It is unknown if a bucket may or may not have refilled
// enough.
type verdict int

const (
	fits verdict = iota
	unknown
	full
)

// remaining returns the smallest and the greatest number of hits that may still be admitted.
func (c *counter) remaining(l *limit, n number) (least, most float64) {
	if l.algorithm == concurrency {
		free := float64(n.n - len(c.held))
		return free, free
	}
	held := float64(c.heldHits())
	return float64(n.burst) - c.top - held, float64(n.burst) - c.low - held
}

// admits decides hits after descriptors of the same request have already charged the given number of hits.
func (c *counter) admits(l *limit, n number, charged, hits int) verdict {
	switch least, most := c.remaining(l, n); {
	case n.n == 0 || float64(charged+hits) > most:
		return full
	case float64(charged+hits) > least:
		return unknown
	}
	return fits
}

// remove removes a lease and reports whether it was active.
func (c *counter) remove(lease uint64) (hold, bool) {
	for i, h := range c.held {
		if h.lease == lease {
			c.held = append(c.held[:i], c.held[i+1:]...)
			return h, true
		}
	}
	return hold{}, false
}
