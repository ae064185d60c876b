package answer

import (
	"context"
	"fmt"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Decider decides batches: on counters in memory, or on those that several processes share. Its
// methods may be called concurrently.
type Decider interface {
	// Decide decides b at the time now, as [limiter.Table.Decide] does, or begins to and reports
	// false. Then it calls w.Decided once, from another goroutine, maybe before Decide
	// returns, and has b and names until then. It takes no longer than it promises, whatever
	// becomes of a store, nor than b.Budget, what is left of the call's deadline. Names are
	// those of b.Charges, as [descriptors.Namer] makes them; the name of a fixed window lacks the
	// window's start. An error, of either, means that there is no decision.
	Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (done bool, err error)
	// Cancel gives back what charges hold that wait, of a batch that was decided: see
	// [limiter.Table.Cancel]. It waits for nobody and keeps neither b nor names.
	Cancel(now limiter.Time, b *limiter.Batch, names [][]byte)
	// Reset makes the counter of charge i of b as new at the time now, and returns what was used of it.
	Reset(ctx context.Context, now limiter.Time, b *limiter.Batch, names [][]byte, i int) (used uint64, err error)
	// Up reports whether the counters can be reached.
	Up() bool
}

// memory decides in a table, at once.
type memory struct{ *limiter.Table }

func (m memory) Decide(now limiter.Time, b *limiter.Batch, _ [][]byte, _ limiter.Waiter) (done bool, err error) {
	m.Table.Decide(now, b)
	return true, nil
}

func (m memory) Cancel(now limiter.Time, b *limiter.Batch, _ [][]byte) { m.Table.Cancel(now, b) }

func (m memory) Reset(_ context.Context, now limiter.Time, b *limiter.Batch, _ [][]byte, i int) (used uint64, err error) {
	return m.Table.Reset(now, b, i), nil
}

func (memory) Up() bool { return true }

// storeError says that a decider did not decide, which only one with a store does.
type storeError struct{ err error }

func (e *storeError) Error() string { return fmt.Sprintf("no decision by the store: %v", e.err) }
func (e *storeError) Unwrap() error { return e.err }

// NotDecided returns the error of a request for which a decider had an error in place of a decision, or nil.
func NotDecided(err error) error {
	if err == nil {
		return nil
	}
	return &storeError{err}
}
