package descriptors

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// What the words of the algorithms are where a file does not say.
const (
	defaultSubWindows = 10
	defaultSlack      = 10
	defaultMaxWaiting = 100
)

// longestMaxWait bounds how long a reply may be held.
const longestMaxWait = time.Minute

// algorithm is the limit's algorithm, the default applied.
func (l *RateLimitConfig) algorithm() limiter.Algorithm {
	if l.Algorithm == 0 {
		return limiter.FixedWindow
	}
	return l.Algorithm
}

// window is the limit's window in seconds. It cannot overflow.
func (l *RateLimitConfig) window() int64 { return l.Unit.Seconds() * int64(l.UnitMultiplier) }

// policy is what the words of a valid limit, not an unlimited one, mean. That
// refused hits count depends on more than the limit, so it is left out.
func (l *RateLimitConfig) policy() limiter.Policy {
	p := limiter.Policy{
		Algorithm: l.algorithm(), Limit: l.RequestsPerUnit, Window: time.Duration(l.window()) * time.Second,
	}
	switch p.Algorithm {
	case limiter.SlidingWindow:
		p.SubWindows = given(l.SubWindows, defaultSubWindows)
	case limiter.TokenBucket:
		p.Burst = given(l.Burst, max(1, l.RequestsPerUnit))
	case limiter.LeakyBucket:
		p.Slack = given(l.Slack, defaultSlack)
		p.MaxWait = given(l.MaxWait, 0)
		p.MaxWaiting = given(l.MaxWaiting, defaultMaxWaiting)
	default: // no words of their own
	}
	return p
}

// given returns what word points to, or otherwise if the file does not say.
func given[T any](word *T, otherwise T) T {
	if word == nil {
		return otherwise
	}
	return *word
}

// sameCounter reports whether the counters of two limits of one descriptor would
// be the same: whether counterWord is.
func sameCounter(a, b *RateLimitConfig) bool {
	p, q := a.policy(), b.policy()
	return counterWord(&p) == counterWord(&q)
}

// sameCounterHelp says how to mend two limits that are the same counter.
func sameCounterHelp(a limiter.Algorithm) string {
	if a == limiter.TokenBucket || a == limiter.LeakyBucket {
		return "they would be one counter; give one of them another window, such as 60 a minute for 1 a second"
	}
	return "the lower alone would hold"
}

// mistake is something wrong with a word of a limit: with its value, or that it
// stands there at all.
type mistake struct {
	word      string
	misplaced bool
	message   string
}

// mistakes returns what is wrong with the words of l's algorithm, beside the range
// that each word has by itself. The window must be valid.
func (l *RateLimitConfig) mistakes() []mistake {
	var all []mistake
	algorithm := l.algorithm()
	for _, w := range []struct {
		word  string
		given bool
		of    limiter.Algorithm
	}{
		{"sub_windows", l.SubWindows != nil, limiter.SlidingWindow},
		{"burst", l.Burst != nil, limiter.TokenBucket},
		{"slack", l.Slack != nil, limiter.LeakyBucket},
		{"max_wait", l.MaxWait != nil, limiter.LeakyBucket},
		{"max_waiting", l.MaxWaiting != nil, limiter.LeakyBucket},
	} {
		if w.given && w.of != algorithm {
			all = append(all, mistake{w.word, true, fmt.Sprintf(`%q has no meaning under %s; it belongs to "algorithm: %s"`,
				w.word, algorithmName(algorithm), algorithmName(w.of))})
		}
	}
	p := l.policy()
	switch p.Algorithm {
	case limiter.SlidingLog:
		if p.Limit > limiter.MaxLog {
			all = append(all, mistake{"requests_per_unit", false, fmt.Sprintf(
				`"requests_per_unit" of a sliding_log must be at most %d, not %d, because the time of each hit is kept; sliding_window has no such bound`,
				limiter.MaxLog, p.Limit)})
		}
	case limiter.TokenBucket:
		if most := p.MaxHits(); uint64(p.Burst) > most {
			all = append(all, mistake{"burst", false, fmt.Sprintf(
				`"burst" is %d, which would take more than 36 years to fill at %d in %s; it must be at most %d`,
				p.Burst, p.Limit, windowText(l.Unit, l.UnitMultiplier), most)})
		}
	case limiter.LeakyBucket:
		if most := p.MaxHits(); uint64(p.Slack)+1 > most {
			byDefault := ""
			if l.Slack == nil {
				byDefault = " by default"
			}
			all = append(all, mistake{"slack", false, fmt.Sprintf(
				`"slack" is %d%s, which would take more than 36 years to come back at %d in %s; it must be at most %d`,
				p.Slack, byDefault, p.Limit, windowText(l.Unit, l.UnitMultiplier), most-1)})
		}
	default: // no number is too high
	}
	return all
}

// windowText writes a window as `minute` or `10 minutes`.
func windowText(u Unit, multiplier uint32) string {
	if multiplier > 1 {
		return fmt.Sprintf("%d %ss", multiplier, u)
	}
	return "1 " + u.String()
}

// backlog is the time in which a counter of p that is used up becomes as new.
func backlog(p *limiter.Policy) time.Duration {
	hits := uint64(p.Limit)
	switch p.Algorithm {
	case limiter.TokenBucket:
		hits = uint64(p.Burst)
	case limiter.LeakyBucket:
		hits = uint64(p.Slack) + 1
	default: // a window
	}
	if p.Limit == 0 || hits == uint64(p.Limit) {
		return p.Window
	}
	hi, lo := bits.Mul64(hits, uint64(p.Window)) //nolint:gosec // a window is positive
	n, _ := bits.Div64(hi, lo, uint64(p.Limit))  // at most 2^60, see Policy.MaxHits
	return time.Duration(n)                      //nolint:gosec // see above
}

// String returns the limit for people: `60/minute`, or with its algorithm and the
// words of that where it is no fixed window.
func (l *Limit) String() string {
	switch {
	case l.Rule != nil && l.Rule.Unlimited:
		return "unlimited"
	case l.Policy.Algorithm == limiter.FixedWindow:
		return rate(l)
	default:
		return rate(l) + ", " + algorithmText(&l.Policy)
	}
}

// algorithmText writes an algorithm with its words.
func algorithmText(p *limiter.Policy) string {
	var b strings.Builder
	b.WriteString(algorithmName(p.Algorithm))
	switch p.Algorithm {
	case limiter.SlidingWindow:
		fmt.Fprintf(&b, " of %d sub-window", p.SubWindows)
		if p.SubWindows != 1 {
			b.WriteString("s")
		}
	case limiter.TokenBucket:
		fmt.Fprintf(&b, ", burst %d", p.Burst)
	case limiter.LeakyBucket:
		fmt.Fprintf(&b, ", slack %d", p.Slack)
		if p.MaxWait > 0 {
			fmt.Fprintf(&b, ", holds replies up to %s, %d at most", p.MaxWait, p.MaxWaiting)
		}
	default: // no words of their own
	}
	return b.String()
}
