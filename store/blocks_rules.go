package store

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const (
	// lifeParts divides the time in which an empty bucket fills. Blocks of the bucket last at most one
	// part.
	lifeParts = 4
	// minLife is the minimum time for which blocks can be used: shorter ones cost too much.
	minLife = 200 * time.Millisecond
	// hitsMask and oneEnd are the parts of balance.word.
	hitsMask = math.MaxUint32
	oneEnd   = hitsMask + 1
)

// usesBlocks reports whether c may be decided from a block.
func usesBlocks(c *limiter.Charge) bool {
	p := c.Policy
	return c.Hits > 0 && c.Hits <= hitsMask && !c.Refund && !c.Reserve &&
		p.Reserve == nil && p.Penalty == nil && !p.NoBlocks && p.Limit > 0 && hasBlocks(p)
}

// hasBlocks reports whether blocks of p can be used for long enough.
func hasBlocks(p *limiter.Policy) bool {
	switch p.Algorithm {
	case limiter.FixedWindow:
		return true
	case limiter.SlidingWindow:
		return p.Ring().Length() >= 2*minLife
	case limiter.TokenBucket, limiter.LeakyBucket:
		return !p.CountRefused && p.MaxWait == 0 && blockLife(p) >= minLife
	case limiter.SlidingLog, limiter.Concurrency:
	}
	return false
}

// blockLife returns how long blocks of a bucket may last.
func blockLife(p *limiter.Policy) time.Duration {
	k := p.Bucket()
	return k.Duration(k.Full) / lifeParts
}

func isBucket(p *limiter.Policy) bool {
	return p.Algorithm == limiter.TokenBucket || p.Algorithm == limiter.LeakyBucket
}

// A period is a window or sub-window, from start to before end. A bucket has only one, which is always.
type period struct{ start, end limiter.Time }

func (p period) contains(at limiter.Time) bool { return p.start <= at && at < p.end }

// periodAt returns the period that contains a time of the store.
func periodAt(p *limiter.Policy, at limiter.Time) period {
	switch p.Algorithm {
	case limiter.FixedWindow:
		return period{p.WindowStart(at), p.WindowEnd(at)}
	case limiter.SlidingWindow:
		return period{p.Ring().Start(at), p.Ring().End(at)}
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.SlidingLog, limiter.Concurrency:
	}
	return period{math.MinInt64, math.MaxInt64}
}
