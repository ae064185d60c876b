package blocks_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
)

// limit is a limit, as docs/algorithms.md describes it.
type limit struct {
	algorithm string
	n         int           // requests_per_unit
	window    time.Duration // whole seconds, hours or years
	size      int           // of a bucket: burst, or slack + 1
	parts     int           // of a sliding window
	fields    string        // further fields in YAML
	unit      string        // of a calendar; none: the window has a fixed length
	zone      zone          // of a calendar
	candidate bool
}

const year = 365 * 24 * time.Hour

// yaml returns the limit.
func (l limit) yaml() string {
	unit, length := "second", time.Second
	for name, d := range map[string]time.Duration{"hour": time.Hour, "year": year} {
		if l.window%d == 0 {
			unit, length = name, max(length, d)
		}
	}
	if l.window%year == 0 {
		unit = "year"
	}
	fields := l.fields
	switch l.algorithm {
	case "token_bucket":
		fields += fmt.Sprintf(", burst: %d", l.size)
	case "leaky_bucket":
		fields += fmt.Sprintf(", slack: %d", l.size-1)
	case "sliding_window":
		fields += fmt.Sprintf(", sub_windows: %d", l.parts)
	}
	if l.candidate {
		fields += ", shadow: true"
	}
	if l.unit != "" {
		return fmt.Sprintf("{unit: %s, requests_per_unit: %d, algorithm: %s, calendar: true, timezone: %s%s}", l.unit, l.n, l.algorithm, l.zone.name, fields)
	}
	return fmt.Sprintf("{unit: %s, unit_multiplier: %d, requests_per_unit: %d, algorithm: %s%s}", unit, l.window/length, l.n, l.algorithm, fields)
}

// bucket reports whether the limit is a bucket.
func (l limit) bucket() bool { return l.size > 0 }

// capacity returns the hits of a counter that is not used.
func (l limit) capacity() int {
	if l.bucket() {
		return l.size
	}
	return l.n
}

// blockLife returns for how long unused hits of a block may be used.
func (l limit) blockLife() time.Duration {
	switch {
	case l.bucket():
		return min(2*time.Second, l.fill()/4) // a second and four round trips
	case l.parts > 0:
		return l.window / time.Duration(l.parts)
	}
	return l.window
}

// fill returns the time in which an empty bucket fills.
func (l limit) fill() time.Duration {
	return time.Duration(float64(l.window) * float64(l.size) / float64(l.n))
}

// clockError bounds the error of a replica's estimate of the store's clock. With 30 runnable processes on
// two cores, errors were up to 21 ms.
const clockError = 100 * time.Millisecond

// clockSteps is the resolution of the times of the store and of blocks.
const clockSteps = time.Millisecond

// bounds are the checks of a limit's hits: bounds, and how each measures time.
func (l limit) bounds() (all []bound, units []func(span) span) {
	parts := func(length time.Duration) func(span) span { // with the replicas' estimates of the store's clock
		return func(s span) span {
			from, to := s.from+int64(l.zone.offset-clockError), s.to+int64(l.zone.offset+clockError)
			return span{floor(from, int64(length)), floor(to, int64(length)), s.hits}
		}
	}
	same := func(s span) span { return s }
	switch {
	case l.bucket():
		rate := float64(l.n) / float64(l.window)
		return []bound{{most: float64(l.size) + rate*float64(clockSteps), rate: rate, longest: math.MaxInt64}}, []func(span) span{same}
	case l.parts > 0 && l.unit != "": // no test is as long as the parts that count together
		return []bound{{most: float64(l.n), longest: math.MaxInt64}}, []func(span) span{same}
	case l.parts > 0:
		// The current part and all before it that count, and, in case the estimates are good, any window.
		return []bound{{most: float64(l.n), longest: int64(l.parts)}, {most: float64(l.n), longest: int64(l.window-2*clockError) - 1}},
			[]func(span) span{parts(l.window / time.Duration(l.parts)), same}
	}
	return []bound{{most: float64(l.n), rate: float64(l.n), longest: math.MaxInt64}}, []func(span) span{parts(l.window)}
}

func floor(a, b int64) int64 { return a / b }

// counter is the ledger of a limit. Times are nanoseconds since the Unix epoch by the wall clock of
// the start of the test, and the monotonic clock since then. Safe for concurrent use.
type counter struct {
	limit
	domain, descriptor string // as /counters takes it

	mu      sync.Mutex
	hits    []span // that were admitted
	extra   []span // hits that an event allows in addition
	refunds []span
}

func (c *counter) record(s span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits = append(c.hits, s)
}

// allow allows the capacity in addition after an event between the given times that resets the
// counter, for as long as hits of earlier blocks may be used or returned.
func (c *counter) allow(from, to int64) {
	s := span{from, to + int64(c.blockLife()+clockSteps), c.capacity()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.bucket() && c.parts == 0 { // the first block of a window is charged before it begins
		s.to = to + int64(time.Second)
	}
	c.extra = append(c.extra, s)
}

// exceeded returns a description of an interval with too many hits, or "". Replicas that decide without
// the store multiply the bound.
func (c *counter) exceeded(factor int) (bad string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bounds, units := c.bounds()
	for i, b := range bounds {
		b.most, b.rate = b.most*float64(factor), b.rate*float64(factor)
		var hits, extra []span
		for _, s := range c.hits {
			hits = append(hits, units[i](s))
		}
		for _, s := range c.extra {
			u := units[i](s)
			if c.bucket() || c.parts > 0 {
				extra = append(extra, u)
				continue
			}
			for w := u.from; w <= u.to; w++ {
				extra = append(extra, span{w, w, s.hits})
			}
		}
		if worst, found := b.exceeded(hits, extra); found {
			return worst.String()
		}
	}
	return ""
}

// mixClient is a kind of request: its descriptors, and the limits of each.
type mixClient struct {
	name        string
	together    bool // all_or_nothing
	descriptors [][]limit
}

// domain returns the domain of the client's rules.
func (c mixClient) domain() string {
	if c.together {
		return "g"
	}
	return "m"
}

// clientRules returns the rules of all clients.
func clientRules(all []mixClient) string {
	text := map[bool]*strings.Builder{false: {}, true: {}}
	text[false].WriteString("domain: m\ndescriptors:\n")
	text[true].WriteString("domain: g\nall_or_nothing: true\ndescriptors:\n")
	for _, c := range all {
		for i, limits := range c.descriptors {
			b := text[c.together]
			fmt.Fprintf(b, "  - key: k%d\n    value: %s\n    rate_limits:\n", i, c.name)
			for _, l := range limits {
				fmt.Fprintf(b, "      - %s\n", l.yaml())
			}
		}
	}
	return text[false].String() + "---\n" + text[true].String()
}
