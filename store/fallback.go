package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A Fallback determines decisions while the store is unavailable.
type Fallback string

// The fallbacks.
const (
	// Local decides in memory.
	Local Fallback = "local"
	// Error returns [ErrUnavailable], so that Envoy's failure mode applies.
	Error Fallback = "error"
	// Allow admits every request.
	Allow Fallback = "allow"
	// Deny denies every request with hits.
	Deny Fallback = "deny"
)

// ErrUnavailable is returned instead of a decision while the store is unavailable and the fallback
// is [Error].
var ErrUnavailable = errors.New("the store is unavailable")

// Validate returns an error if f is not a known fallback.
func (f Fallback) Validate() error {
	switch f {
	case Local, Error, Allow, Deny:
		return nil
	}
	return fmt.Errorf("fallback of %q: must be local, error, allow or deny", string(f))
}

// recordsUnsynced reports whether hits that f admits are charged to the store later.
func (f Fallback) recordsUnsynced() bool { return f == Local || f == Allow }

// undecidedFor is when clients should ask again while the store does not decide: the reset of all
// limits, and the retry-after of denials.
const undecidedFor = time.Second

// decide decides b without the store.
func (f Fallback) decide(now limiter.Time, b *limiter.Batch, table *limiter.Table) error {
	switch f {
	case Error:
		return ErrUnavailable
	case Allow, Deny:
		f.decideAll(b)
		return nil
	default:
		table.Decide(now, b)
		return nil
	}
}

// decideAll admits or denies all charges of b.
func (f Fallback) decideAll(b *limiter.Batch) {
	b.Stored().ResetDecisions()
	b.Stored().OffsetRefunds() // the remaining hits are unsynced
	b.Denied = false
	b.Wait = 0
	for i := range b.Charges {
		c := &b.Charges[i]
		d := &b.Decisions[i]
		if c.Choice == limiter.NextChoice { // a choice is charged to its first limit
			*d = limiter.Decision{Skipped: true}
			continue
		}
		*d = limiter.Decision{Remaining: c.Policy.Capacity(), Reset: undecidedFor}
		if f == Allow || c.Refund || c.Hits == 0 {
			continue
		}
		*d = limiter.Decision{Over: true, Denied: c.Mode.Denies(), Reset: undecidedFor, RetryAfter: undecidedFor}
		b.Denied = b.Denied || d.Denied
	}
}
