package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Reserve is the field reserve of a limit: how many hits a request reserves if its cost is known
// only at its end.
type Reserve struct {
	// Amount is the number of hits that each request reserves. If it is 0, requests reserve the
	// 90th percentile of recent costs (p90), and First until that is known.
	Amount, First uint32
	// TTL is the longest time that a reservation lasts, in whole seconds from 1s to [MaxTTL].
	TTL time.Duration
	// Release is true if a reservation that is never settled is released (unsettled: release).
	// Otherwise it is charged (unsettled: keep).
	Release bool
}

const (
	// DefaultTTL is the default of ttl.
	DefaultTTL = time.Minute
	// MaxTTL is the greatest ttl.
	MaxTTL = time.Hour
	// minEstimateDivisor bounds how far the estimate can fall below First, to an eighth. This
	// bounds the number of reservations, each of which takes memory.
	minEstimateDivisor = 8
)

// reserveAlgorithms are the algorithms that support reserve.
var reserveAlgorithms = []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingWindow, limiter.TokenBucket}

// Range returns the lowest and the highest number of hits that a request reserves on a counter of
// p: at most the counter's capacity, and at least the capacity divided by the greatest number of
// reservations.
func (r *Reserve) Range(p *limiter.Policy) (lowest, highest uint64) {
	highest = max(1, p.Capacity())
	if r.Amount > 0 {
		amount := min(uint64(r.Amount), highest)
		return amount, amount
	}
	return min(highest, max(uint64(r.First)/minEstimateDivisor, minAmount(highest))), highest
}

// minAmount divides a capacity by the greatest number of reservations, rounding up.
func minAmount(capacity uint64) uint64 {
	return (capacity + limiter.MaxReservations - 1) / limiter.MaxReservations
}

// Configure configures the limiter's reserve of a counter with the policy p, which is that of a
// rule, a row or an override.
func (r *Reserve) Configure(to *limiter.Reserve, p *limiter.Policy) {
	lowest, _ := r.Range(p)
	reservations := min(max(1, (p.Capacity()+lowest-1)/lowest), limiter.MaxReservations)
	life := r.TTL
	if !r.Release { // it is charged at the ttl, and lasts until the charged hits no longer count
		life = min(life+RecoveryTime(p)+time.Second-1, limiter.MaxWindow).Truncate(time.Second)
	}
	to.Set(uint32(reservations), life, r.Release)
	to.SetLongestLife(min(MaxTTL+RecoveryTime(p)+time.Second, limiter.MaxWindow))
}

// String returns the field with all its values.
func (r *Reserve) String() string {
	amount := fmt.Sprintf("amount: %d", r.Amount)
	unsettled := "keep"
	if r.Amount == 0 {
		amount = fmt.Sprintf("p90: true, first: %d", r.First)
	}
	if r.Release {
		unsettled = "release"
	}
	return fmt.Sprintf("reserve: { %s, ttl: %s, unsettled: %s }", amount, r.TTL, unsettled)
}

func (l *Limit) checkReserve(all *mistakes) {
	r := l.Reserve
	if r == nil {
		return
	}
	if algorithm := l.algorithm(); !slices.Contains(reserveAlgorithms, algorithm) {
		all.misplaced("reserve", `"reserve" is not supported by algorithm %s; it requires "algorithm: fixed_window", "sliding_window" or "token_bucket"`, AlgorithmName(algorithm))
		return
	}
	switch {
	case r.Amount == 0 && r.First == 0:
		all.wrong("reserve",
			`"reserve" has neither "amount" nor "first"; write "amount: 2000", or "p90: true, first: 2000"`)
	case r.Amount > 0 && r.First > 0:
		all.wrong("reserve",
			`"reserve" has both "amount" and "first"; "first" belongs to "p90: true"; remove one of them`)
	}
	if r.TTL < time.Second || r.TTL > MaxTTL || r.TTL%time.Second != 0 {
		all.wrong("reserve.ttl", `"ttl" of reserve must be whole seconds from 1s to %s, not %s`, spanText(MaxTTL), spanText(r.TTL))
	}
	p := l.policy()
	if p.Validate() != nil {
		return // another check reports the error
	}
	amount := uint64(max(r.Amount, r.First))
	switch lowest := minAmount(p.Capacity()); {
	case amount > 0 && amount < lowest:
		all.wrong("reserve", `"reserve" of %d permits %d reservations at once on a limit of %d; at most %d are supported, so it must be at least %d`,
			amount, p.Capacity()/amount, p.Capacity(), limiter.MaxReservations, lowest)
	case amount > p.Capacity() && p.Limit > 0:
		all.wrong("reserve",
			`"reserve" of %d exceeds the capacity of the limit, %d, so each request would need an empty counter`, amount, p.Capacity())
	}
}
