package script

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// While the store runs a script it does nothing else. So a run is bounded by how long it takes, as
// estimated here, and not by how many charges it has: a log of 4,096 hits takes as long as a hundred
// fixed windows. The figures are those of a Redis 7.0 on one machine, with a margin: see TestCostTable. Package store divides what a
// run may take by how much slower its server is.
const (
	// MaxRun is what one run takes at most, but for a counter that takes more by itself.
	MaxRun = time.Millisecond
	// MaxPart is what a part of a request takes at most. So beside it a run has room for other requests.
	MaxPart = MaxRun / 2
	// MaxRequest is what a request takes at most. A greater one is decided in memory: the store would
	// answer it too late, and others would wait for what nobody waits for.
	MaxRequest = 8 * time.Millisecond
	// CostOfRun is what a run takes beside its charges.
	CostOfRun = 10 * time.Microsecond
	// CostOfRepeat is what one more charge on a counter takes, but for the hits of a log.
	CostOfRepeat = 2 * time.Microsecond
	costOfHit    = 110 * time.Nanosecond
	// costOfReserve is what reserving or settling takes beside the counter.
	costOfReserve = 14 * time.Microsecond
	// costOfPenalty is what looking at a penalty takes beside the counter, or beginning one.
	costOfPenalty = 6 * time.Microsecond
	// costOfLease is what one takes that is owed.
	costOfLease = 3 * time.Microsecond
	// costOfFixed is what a charge on a fixed window takes.
	costOfFixed = 6 * time.Microsecond
)

// CostOf estimates how long a charge takes in the store, that on a new counter.
func CostOf(p *limiter.Policy, hits uint64) time.Duration {
	if p.Reserve != nil {
		return costOfReserve + costOfCounter(p, hits)
	}
	if p.Penalty != nil {
		return costOfPenalty + costOfCounter(p, hits)
	}
	return costOfCounter(p, hits)
}

// costOfCounter is CostOf without what is reserved beside the counter.
func costOfCounter(p *limiter.Policy, hits uint64) time.Duration {
	switch p.Algorithm {
	case limiter.SlidingWindow:
		k := p.Ring().K()
		return 9*time.Microsecond + time.Duration(k)*220*time.Nanosecond
	case limiter.SlidingLog:
		return 15*time.Microsecond + CostOfHits(p, hits)
	case limiter.TokenBucket, limiter.LeakyBucket:
		return 10 * time.Microsecond
	case limiter.FixedWindow:
		return costOfFixed
	case limiter.Concurrency:
		return 15 * time.Microsecond
	}
	return 0
}

// CostOfHits is what writing the hits of a log takes, each of which is an element.
func CostOfHits(p *limiter.Policy, hits uint64) time.Duration {
	if p.Algorithm != limiter.SlidingLog {
		return 0
	}
	return time.Duration(min(hits, uint64(p.Limit), limiter.MaxLog)) * costOfHit
}

// CostOfAll estimates how long b takes in the store.
func CostOfAll(b *limiter.Batch) (total time.Duration) {
	for i := range b.Charges {
		total += CostOf(b.Charges[i].Policy, b.Charges[i].Hits)
	}
	return total
}
