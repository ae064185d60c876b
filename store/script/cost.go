package script

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A script blocks the store. So runs are bounded by estimated time, not by the number of charges: a
// log of 4,096 hits takes as long as a hundred fixed windows. The figures are those of Redis 7.0 on
// one machine, with a margin: see TestCostTable.
const (
	// MaxRun bounds a run, except for a counter that takes longer alone.
	MaxRun = time.Millisecond
	// MaxPart bounds a part of a request, so that a run has room for other requests.
	MaxPart = MaxRun / 2
	// MaxRequest bounds a request. A larger one is decided in memory: the store would answer too
	// late, and delay other requests.
	MaxRequest = 8 * time.Millisecond
	// CostOfRun is the time of a run without charges.
	CostOfRun = 10 * time.Microsecond
	// CostOfRepeat is the time of one more charge on a counter, without the hits of a log.
	CostOfRepeat = 2 * time.Microsecond
	costOfHit    = 110 * time.Nanosecond
	// costOfReserve is the additional time of a reservation or a settlement.
	costOfReserve = 14 * time.Microsecond
	// costOfPenalty is the additional time of reading or starting a penalty.
	costOfPenalty = 6 * time.Microsecond
	// costOfLease is the time of syncing a lease.
	costOfLease = 3 * time.Microsecond
	// costOfFixed is the time of a charge on a fixed window.
	costOfFixed = 6 * time.Microsecond
)

// CostOf estimates how long a charge on a new counter takes in the store.
func CostOf(p *limiter.Policy, hits uint64) time.Duration {
	if p.Reserve != nil {
		return costOfReserve + costOfCounter(p, hits)
	}
	if p.Penalty != nil {
		return costOfPenalty + costOfCounter(p, hits)
	}
	return costOfCounter(p, hits)
}

// costOfCounter is CostOf without reservations and penalties.
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

// CostOfHits estimates how long it takes to write the hits of a log, each of which is an element.
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
