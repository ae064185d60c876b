package store

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// While the store runs a script it does nothing else. So a run is bounded by how long it takes, as
// estimated here, and not by how many charges it has: a log of 4,096 hits takes as long as a hundred
// fixed windows. The figures are those of a Redis 7.0, with a margin: see TestCostTable.
const (
	// mostRun is what one run takes at most, but for a counter that takes more by itself.
	mostRun = time.Millisecond
	// mostPart is what a part of a request takes at most. So beside it a run has room for other requests.
	mostPart = mostRun / 2
	// mostRequest is what a request takes at most. A greater one is decided in memory: the store would
	// answer it too late, and others would wait for what nobody waits for.
	mostRequest = 8 * time.Millisecond
	// costOfRun is what a run takes beside its charges.
	costOfRun = 10 * time.Microsecond
	// costOfMore is what one more charge on a counter takes, but for the hits of a log.
	costOfMore = 2 * time.Microsecond
	costOfHit  = 110 * time.Nanosecond
)

// costOf estimates how long a charge takes in the store, that on a new counter.
func costOf(p *limiter.Policy, hits uint64) time.Duration {
	switch p.Algorithm {
	case limiter.SlidingWindow:
		_, k := p.Ring()
		return 9*time.Microsecond + time.Duration(k)*220*time.Nanosecond
	case limiter.SlidingLog:
		return 15*time.Microsecond + costOfHits(p, hits)
	case limiter.TokenBucket, limiter.LeakyBucket:
		return 10 * time.Microsecond
	default:
		return 6 * time.Microsecond
	}
}

// costOfHits is what writing the hits of a log takes, each of which is an element.
func costOfHits(p *limiter.Policy, hits uint64) time.Duration {
	if p.Algorithm != limiter.SlidingLog {
		return 0
	}
	return time.Duration(min(hits, uint64(p.Limit), limiter.MaxLog)) * costOfHit
}

// costOfAll estimates how long b takes in the store.
func costOfAll(b *limiter.Batch) (total time.Duration) {
	for i := range b.Charges {
		total += costOf(b.Charges[i].Policy, b.Charges[i].Hits)
	}
	return total
}
