package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Reserve is the word reserve of a limit: how many hits a request reserves whose cost is known at its end.
type Reserve struct {
	// Amount is what each request reserves. It is 0 if each reserves what nine of ten have cost lately (p90), which
	// First stands for until that is known.
	Amount, First uint32
	// TTL is for how long a request reserves them at most, in whole seconds, 1s to [LongestTTL].
	TTL time.Duration
	// Release says that what a request reserves is free again if its end brings no cost, or never comes
	// (unsettled: release). Else it is charged (unsettled: keep).
	Release bool
}

const (
	// DefaultTTL is that of a reserve without the word ttl.
	DefaultTTL = time.Minute
	// LongestTTL is the greatest ttl.
	LongestTTL = time.Hour
	// leastOfFirst bounds how far what nine of ten have cost may fall below its first estimate: to an eighth. So the
	// number of reservations, each of which takes memory, is bounded too.
	leastOfFirst = 8
)

// reservers are the algorithms of limits that can be reserved on.
var reservers = []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingWindow, limiter.TokenBucket}

// Range returns the least and the most that a request reserves on a counter of p: no more than that can ever hold, and
// no less than as many reservations as it has room for divide it into.
func (r *Reserve) Range(p *limiter.Policy) (least, most uint64) {
	most = max(1, p.Capacity())
	if r.Amount > 0 {
		amount := min(uint64(r.Amount), most)
		return amount, amount
	}
	return min(most, max(uint64(r.First)/leastOfFirst, leastAmount(most))), most
}

// leastAmount divides a capacity by the greatest number of reservations, and rounds up.
func leastAmount(capacity uint64) uint64 {
	return (capacity + limiter.MaxReservations - 1) / limiter.MaxReservations
}

// Set makes of the reserve that r means for a limit of p, be its numbers those of a rule, a row or an override.
func (r *Reserve) Set(of *limiter.Reserve, p *limiter.Policy) {
	least, _ := r.Range(p)
	reservations := min(max(1, (p.Capacity()+least-1)/least), limiter.MaxReservations)
	life := r.TTL
	if !r.Release { // it stays held for as long as it would count if it were charged when the ttl is over
		life = min(life+Backlog(p)+time.Second-1, limiter.MaxWindow).Truncate(time.Second)
	}
	of.Set(uint32(reservations), life, r.Release)
	of.SetLongestLife(min(LongestTTL+Backlog(p)+time.Second, limiter.MaxWindow))
}

// String writes the word with all its values.
func (r *Reserve) String() string {
	amount, unsettled := fmt.Sprintf("amount: %d", r.Amount), "keep"
	if r.Amount == 0 {
		amount = fmt.Sprintf("p90: true, first: %d", r.First)
	}
	if r.Release {
		unsettled = "release"
	}
	return fmt.Sprintf("reserve: { %s, ttl: %s, unsettled: %s }", amount, r.TTL, unsettled)
}

func (l *Limit) reserveMistakes() (all []Mistake) {
	r, algorithm := l.Reserve, l.algorithm()
	wrong := func(format string, args ...any) {
		all = append(all, Mistake{"reserve", false, fmt.Sprintf(format, args...)})
	}
	if !slices.Contains(reservers, algorithm) {
		return append(all, Mistake{"reserve", true, fmt.Sprintf(
			`"reserve" has no meaning under %s; it belongs to "algorithm: fixed_window", "sliding_window" or "token_bucket"`, AlgorithmName(algorithm))})
	}
	switch {
	case r.Amount == 0 && r.First == 0:
		wrong(`"reserve" says neither how much ("amount: 2000") nor what to begin with ("p90: true, first: 2000"); add one of them`)
	case r.Amount > 0 && r.First > 0:
		wrong(`"reserve" has both "amount" and "first"; "first" belongs to "p90: true"; remove one of them`)
	}
	if r.TTL < time.Second || r.TTL > LongestTTL || r.TTL%time.Second != 0 {
		wrong(`"ttl" of reserve must be whole seconds from 1s to %s, not %s`, LongestTTL, r.TTL)
	}
	p := l.policy()
	if p.Validate() != nil {
		return all // which is said of the other words
	}
	amount := uint64(max(r.Amount, r.First))
	switch least := leastAmount(p.Capacity()); {
	case amount > 0 && amount < least:
		wrong(`"reserve" of %d could be held %d times at once by a limit of %d; at most %d are, so it must be at least %d`,
			amount, p.Capacity()/amount, p.Capacity(), limiter.MaxReservations, least)
	case amount > p.Capacity() && p.Limit > 0:
		wrong(`"reserve" of %d is more than the limit can ever hold, %d, so that each request would wait for an empty counter`, amount, p.Capacity())
	}
	return all
}
