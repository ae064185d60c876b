package division

import (
	"math"
	"math/bits"
	"time"
)

// Fill is the fill_interval of every assigned token bucket. It is constant because Envoy does not
// notice a change of its seconds. An hour makes rates below one per second whole numbers of tokens;
// Envoy refills continuously.
const Fill = time.Hour

// Rate is a number of tokens per [Fill], as in tokens_per_fill. Rates are whole numbers, so that
// shares never add up to more than the limit. The greatest, [MaxRate], is 1,193,046 per second.
type Rate uint32

// MaxRate is the greatest rate of one share.
const MaxRate Rate = math.MaxUint32 - 1

// unlimited is the rate that the ledger records for AssignAllowAll.
const unlimited = math.MaxUint32

// Strategy determines how a bucket's requests are decided.
type Strategy uint8

const (
	// Divide divides the limit's rate among the streams that report the bucket.
	Divide Strategy = iota
	// AllowAll admits all requests: an unlimited rule, or one in shadow mode.
	AllowAll
	// DenyAll denies all requests: a limit of 0.
	DenyAll
)

// Limit is the limit of a rule for one bucket. It must not be changed after it was passed to a
// divider. Buckets of one rule may share it. Limits are compared by value.
type Limit struct {
	// Hits is the number of requests per Window, for all streams together. The limit is rounded
	// down to whole tokens per [Fill], at most 2^40.
	Hits   uint64
	Window time.Duration
	// Burst is how long a share may accumulate: its token bucket has a capacity of Burst x its
	// rate.
	Burst time.Duration
	// MinTokens is the smallest capacity of a token bucket; 0 means 4.
	MinTokens uint32
	// PredecessorUntil is the time until which another divider may have assigned rates of this
	// limit. The complete limit counts as in effect until TTL and ExpiryMargin have passed since
	// then, as after a restart: see [New]. 0 if there was none.
	PredecessorUntil Time
	// Strategy determines how requests are decided. Unless it is Divide, the fields above except
	// PredecessorUntil are used only by [Divider.CountShadowHits].
	Strategy Strategy
}

func equalLimits(a, b *Limit) bool { return a == b || a != nil && b != nil && *a == *b }

// maxLimitRate bounds a limit, so that sums of rates cannot overflow.
const maxLimitRate = 1 << 40

// perFill returns the limit in tokens per Fill, rounded down.
func (l *Limit) perFill() int64 {
	if l.Window <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(l.Hits, uint64(Fill))
	if hi >= uint64(l.Window) {
		return maxLimitRate
	}
	q, _ := bits.Div64(hi, lo, uint64(l.Window))
	return int64(min(q, maxLimitRate))
}

// maxTokens returns the max_tokens of a token bucket with the given rate.
func (l *Limit) maxTokens(r Rate) uint32 {
	smallest := float64(l.MinTokens)
	if smallest == 0 {
		smallest = 4
	}
	capacity := float64(r) * (float64(l.Burst) / float64(Fill))
	return uint32(min(max(smallest, capacity), math.MaxUint32))
}
