package quota

import (
	"math"
	"math/bits"
	"time"
)

// Fill is the fill_interval of every token bucket that is assigned. It never changes, because Envoy
// does not notice another number of seconds. An hour is long enough for rates below one a second to
// be whole tokens, and Envoy refills continuously.
const Fill = time.Hour

// Rate is in tokens per [Fill], which is what tokens_per_fill says. Rates are whole, so that shares
// never add up to more than what is divided. The greatest, [MaxRate], is 1,193,046 a second.
type Rate uint32

// MaxRate is the greatest rate of one holder.
const MaxRate Rate = math.MaxUint32 - 1

// unlimited stands in the ledger for a holder that may be admitting everything.
const unlimited = math.MaxUint32

// Verdict is what becomes of a bucket's requests.
type Verdict uint8

// The verdicts.
const (
	// Divide divides the limit's rate among those who report the bucket.
	Divide Verdict = iota
	// AllowAll lets everything pass: an unlimited rule, or one in shadow mode.
	AllowAll
	// DenyAll lets nothing pass: a limit of 0.
	DenyAll
)

// Limit is what a rule says of a bucket. It must not be changed once the divider has it; buckets of one
// rule may share it. Two limits that are equal are the same limit.
type Limit struct {
	// Hits per Window, for all holders together. More than 2^40 in [Fill] are taken as 2^40, less than
	// one as none.
	Hits   uint64
	Window time.Duration
	// Burst is how long a holder's share may be saved up: its token bucket holds Burst x its rate.
	Burst time.Duration
	// MinTokens is the least that a token bucket holds; 0 is 4.
	MinTokens uint32
	// Since is until when others divided the limit, of whom nothing is known here. All of it counts as
	// in force until TTL and Delta have passed since then, as after a restart: see [Options].Fresh. 0:
	// nobody but a predecessor did.
	Since Time
	// Verdict other than Divide makes all of the above but Since meaningless, except to [Divider.Beyond].
	Verdict Verdict
}

func same(a, b *Limit) bool { return a == b || a != nil && b != nil && *a == *b }

// mostRate bounds a limit, so that sums of rates are far from overflowing.
const mostRate = 1 << 40

// rate returns what is to be divided, in tokens per Fill, rounded down.
func (l *Limit) rate() int64 {
	if l.Window <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(l.Hits, uint64(Fill))
	if hi >= uint64(l.Window) {
		return mostRate
	}
	q, _ := bits.Div64(hi, lo, uint64(l.Window))
	return int64(min(q, mostRate))
}

// tokens returns max_tokens of a token bucket of a rate.
func (l *Limit) tokens(r Rate) uint32 {
	least := float64(l.MinTokens)
	if least == 0 {
		least = 4
	}
	saved := float64(r) * (float64(l.Burst) / float64(Fill))
	return uint32(min(max(least, saved), math.MaxUint32))
}
