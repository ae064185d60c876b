package denials_test

import (
	"slices"
	"time"
)

// counter models one counter of a limit, from docs/algorithms.md. Times are nanoseconds since 1970.
type counter struct {
	limit *limit
	hits  []int64 // of windows and logs: the time of each hit; of concurrency: of each permit
	tat   int64   // of buckets: when the bucket is full
}

var units = map[string]int64{"second": 1, "minute": 60, "hour": 3600, "day": 86400, "year": 365 * 86400}

func (l *limit) window() int64 { return units[l.Unit] * int64(time.Second) }

// interval is the time in which a bucket gets one more hit.
func (l *limit) interval() int64 { return l.window() / max(l.N, 1) }

// capacity is the number of hits that pass at once.
func (l *limit) capacity() int64 {
	switch {
	case l.N == 0:
		return 0
	case l.Algorithm == "token_bucket" && l.Burst > 0:
		return l.Burst
	case l.Algorithm == "leaky_bucket":
		return l.Slack + 1
	}
	return l.N
}

func (l *limit) bucket() bool { return l.Algorithm == "token_bucket" || l.Algorithm == "leaky_bucket" }

// expires returns the time at which a hit does not count any more.
func (l *limit) expires(at int64) int64 {
	w := l.window()
	switch l.Algorithm {
	case "sliding_window":
		const parts = 10
		return (at/(w/parts) + parts + 1) * (w / parts)
	case "sliding_log", "concurrency":
		return at + w
	}
	return (at/w + 1) * w
}

// used returns the number of hits that count at a time; for buckets, the missing hits.
func (c *counter) used(now int64) (n int64) {
	if c.limit.bucket() {
		return (max(c.tat-now, 0) + c.limit.interval() - 1) / c.limit.interval()
	}
	for _, at := range c.hits {
		if c.limit.expires(at) > now {
			n++
		}
	}
	return n
}

// admits reports whether the hits pass at a time.
func (c *counter) admits(now, hits int64) bool {
	switch l := c.limit; {
	case l.Algorithm == "concurrency":
		return hits == 0 || c.used(now) < l.N
	case l.bucket():
		return max(c.tat, now)+hits*l.interval()-now <= l.capacity()*l.interval()
	default:
		return c.used(now)+hits <= l.N
	}
}

func (c *counter) charge(now, hits int64) {
	if c.limit.bucket() {
		c.tat = max(c.tat, now) + hits*c.limit.interval()
		return
	}
	if c.limit.Algorithm == "concurrency" {
		hits = min(hits, 1)
	}
	for range hits {
		c.hits = append(c.hits, now)
	}
}

// chargeDenied charges hits that were denied by a limit with count_refused.
func (c *counter) chargeDenied(now, hits int64) {
	if c.limit.bucket() && c.limit.N == 0 {
		return // never repaid
	}
	c.charge(now, hits)
	switch l := c.limit; {
	case l.bucket():
		c.tat = min(c.tat, now+l.capacity()*l.interval()+l.window())
	case l.Algorithm == "sliding_log":
		c.hits = c.hits[max(0, int64(len(c.hits))-l.N):] // the newest
	}
}

func (c *counter) remaining(now int64) int64 { return max(c.limit.capacity()-c.used(now), 0) }

// wait returns the time until denied hits are admitted.
func (c *counter) wait(now, hits int64) time.Duration {
	l := c.limit
	var times []int64
	switch {
	case l.Algorithm == "concurrency":
		return time.Second
	case l.Algorithm == "fixed_window":
		return time.Duration(l.expires(now) - now)
	case hits > l.capacity():
		return time.Duration(l.window())
	case l.bucket():
		return time.Duration(c.tat + (hits-l.capacity())*l.interval() - now)
	}
	for _, at := range c.hits {
		times = append(times, l.expires(at))
	}
	slices.Sort(times)
	for _, at := range times {
		if at > now && c.admits(at, hits) {
			return time.Duration(at - now)
		}
	}
	return 0
}

// reset returns t of the header RateLimit for an admitted request.
func (c *counter) reset(now int64) time.Duration {
	l := c.limit
	if l.bucket() {
		left := max(c.tat-now, 0)
		if left == 0 {
			return 0
		}
		return time.Duration((left-1)%l.interval() + 1)
	}
	if l.Algorithm == "fixed_window" {
		return time.Duration(l.expires(now) - now)
	}
	full := now
	for _, at := range c.hits {
		full = max(full, l.expires(at))
	}
	return time.Duration(full - now)
}
