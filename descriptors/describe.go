package descriptors

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// backlog returns how long a used-up counter of p takes to equal a new one.
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

// String returns the limit for people: `60/minute` for a fixed window. Other algorithms
// follow with their words.
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
	b.WriteString(rules.AlgorithmName(p.Algorithm))
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

// rate returns a limit as 60/minute or 60/10minute.
func rate(l *Limit) string {
	b := strconv.AppendUint(nil, uint64(l.RequestsPerUnit), 10)
	b = append(b, '/')
	if l.UnitMultiplier > 1 {
		b = strconv.AppendUint(b, uint64(l.UnitMultiplier), 10)
	}
	return string(append(b, l.Unit.String()...))
}
