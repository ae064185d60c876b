package store

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
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

// periodEnd returns the end of the window or sub-window at a time; 0 for a bucket.
func periodEnd(p *limiter.Policy, at limiter.Time) limiter.Time {
	switch p.Algorithm {
	case limiter.FixedWindow:
		return p.WindowEnd(at)
	case limiter.SlidingWindow:
		return p.Ring().End(at)
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.SlidingLog, limiter.Concurrency:
	}
	return 0
}

// periodStart returns the start of the window or sub-window that ends at end.
func periodStart(p *limiter.Policy, end limiter.Time) limiter.Time {
	switch p.Algorithm {
	case limiter.FixedWindow:
		return p.WindowStart(end - 1)
	case limiter.SlidingWindow:
		return p.Ring().Start(end - 1)
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.SlidingLog, limiter.Concurrency:
	}
	return 0
}
