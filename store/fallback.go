package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A Fallback says what is answered while the store is away.
type Fallback string

// The fallbacks.
const (
	// Local decides in memory.
	Local Fallback = "local"
	// Error answers that there is no decision, so that Envoy's failure mode decides.
	Error Fallback = "error"
	// Allow admits every request.
	Allow Fallback = "allow"
	// Deny denies every request that takes hits.
	Deny Fallback = "deny"
)

// ErrUnavailable is returned in place of a decision while the store is away and the fallback is [Error].
var ErrUnavailable = errors.New("the store is away")

// Validate returns an error if f is none of the fallbacks.
func (f Fallback) Validate() error {
	switch f {
	case Local, Error, Allow, Deny:
		return nil
	}
	return fmt.Errorf("fallback of %q: must be local, error, allow or deny", string(f))
}

// recordsUnsynced reports whether what f admits is owed to the store.
func (f Fallback) recordsUnsynced() bool { return f == Local || f == Allow }

// denyReset is when a request that was denied without a store may come again.
const denyReset = time.Second

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

// decideAll decides all of b alike.
func (f Fallback) decideAll(b *limiter.Batch) {
	b.Stored().Resize()
	b.Stored().SetOff() // what is left of hits is owed
	b.Denied, b.Wait = false, 0
	for i := range b.Charges {
		c, d := &b.Charges[i], &b.Decisions[i]
		*d = limiter.Decision{Remaining: c.Policy.Capacity(), Reset: denyReset}
		if f == Allow || c.Refund || c.Hits == 0 {
			continue
		}
		*d = limiter.Decision{Over: true, Denied: c.Mode.Denies(), Reset: denyReset, RetryAfter: denyReset}
		b.Denied = b.Denied || d.Denied
	}
}
