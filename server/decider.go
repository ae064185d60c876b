package server

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

// decide has c's batch decided. It reports whether that is done; if not, w is told when it is.
func (s *Service) decide(now limiter.Time, c *Call, w limiter.Waiter) (done bool, err error) {
	if len(c.plan.Batch.Charges) == 0 { // nothing is limited
		return true, nil
	}
	if s.later {
		c.undecided, c.service = true, s
	}
	done, err = s.decider.Decide(now, &c.plan.Batch, c.plan.Names, w)
	if err != nil {
		err = &storeError{err}
	}
	if done || err != nil {
		c.undecided = false
	}
	return done, err
}

// Decided implements [limiter.Waiter] for the goroutine that waits in [Service.Answer].
func (c *Call) Decided(err error) { c.decided <- err }

// Exceeded implements [limiter.Waiter]: it returns what counts hits of a charge that turn out to be beyond the
// limit when the store is back. Nobody else uses c meanwhile.
func (c *Call) Exceeded(charge int) func(hits uint64) {
	of := -1 // the descriptor
	for i := range c.plan.Matches {
		if m := &c.plan.Matches[i]; m.First <= charge && charge < m.First+m.Count {
			of = i
		}
	}
	for _, candidate := range c.plan.Candidates {
		if candidate.Charge == charge {
			of = candidate.Match
		}
	}
	if of < 0 || !c.plan.KnownDomain {
		return nil
	}
	return c.service.counters(c.rules, c, of, c.plan.Limits[charge]).Exceeded
}

// waiting returns c as what waits for its own decision.
func (c *Call) waiting() limiter.Waiter {
	if c.decided == nil {
		c.decided = make(chan error, 1)
	}
	return c
}

// await waits for a decision that comes later, after begin has had it begun.
func (c *Call) await(done bool, err error) error {
	if done || err != nil {
		return err
	}
	err = <-c.decided
	c.undecided = false
	if err != nil {
		return &storeError{err}
	}
	return nil
}
