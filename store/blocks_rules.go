package store

import "github.com/sluice-ratelimit/sluice/limiter"

// These are constants of blocks and of denials from memory, for package simulate, which has a model
// of them.
const (
	MinHold       = minHold
	DemandPeriod  = demandPeriod
	DemandSamples = demandSamples
	MinDemand     = minDemand
	MinBlock      = minBlock
	BlockIdle     = blockIdle
	MaxUnused     = maxUnused
	DenyFor       = denyFor
	SweepBlocks   = sweepBlocks
	CacheFor      = cacheFor
	RecheckAfter  = recheckAfter
)

// UsesBlocks reports whether a charge may be decided from a block if its request has no other one.
func UsesBlocks(c *limiter.Charge) bool { return usesBlocks(c) }
