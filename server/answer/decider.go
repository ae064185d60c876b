package answer

import (
	"context"
	"fmt"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Decider decides batches, by counters in memory or in a store that several processes share. Its
// methods may be called concurrently.
type Decider interface {
	// Decide decides b at the time now, as [limiter.Table.Decide] does. If done is false, it calls
	// w.Decided exactly once from another goroutine, possibly before Decide returns, and uses b and
	// names until then. The decision takes at most b.Budget, the time until the call's deadline,
	// and at most the decider's own timeout, even if a store does not respond. Names contains the
	// store's names of b.Charges, made by [descriptors.Namer]; the name of a fixed window lacks the
	// start of the window. An error, returned or passed to w.Decided, means that there is no
	// decision.
	Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (done bool, err error)
	// Cancel cancels the delayed charges of a decided batch; see [limiter.Table.Cancel]. It does
	// not block, and does not keep b or names.
	Cancel(now limiter.Time, b *limiter.Batch, names [][]byte)
	// Reset resets the counter of charge i of b at the time now and returns the hits that were
	// used.
	Reset(ctx context.Context, now limiter.Time, b *limiter.Batch, names [][]byte, i int) (used uint64, err error)
	// Up reports whether the counters can be reached.
	Up() bool
}

// tableDecider decides synchronously by the counters of a table.
type tableDecider struct{ *limiter.Table }

func (m tableDecider) Decide(now limiter.Time, b *limiter.Batch, _ [][]byte, _ limiter.Waiter) (done bool, err error) {
	m.Table.Decide(now, b)
	return true, nil
}

func (m tableDecider) Cancel(now limiter.Time, b *limiter.Batch, _ [][]byte) { m.Table.Cancel(now, b) }

func (m tableDecider) Reset(
	_ context.Context, now limiter.Time, b *limiter.Batch, _ [][]byte, i int,
) (used uint64, err error) {
	return m.Table.Reset(now, b, i), nil
}

func (tableDecider) Up() bool { return true }

// storeError is the error of a request that the store did not decide.
type storeError struct{ err error }

func (e *storeError) Error() string { return fmt.Sprintf("no decision by the store: %v", e.err) }
func (e *storeError) Unwrap() error { return e.err }

// WrapStoreError returns the error of a request for which the decider returned err, or nil if err
// is nil.
func WrapStoreError(err error) error {
	if err == nil {
		return nil
	}
	return &storeError{err}
}
