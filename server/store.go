package server

import (
	"context"
	"fmt"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Store decides the requests of several processes on counters that they share. Its methods may
// be called concurrently.
type Store interface {
	// Decide decides b at the time now, as [limiter.Table.Decide] does, or begins to and reports
	// false. Then it calls w.Decided once, from another goroutine, maybe before Decide
	// returns, and has b and names until then. It takes no longer than it promises, whatever
	// becomes of the store, nor than b.Budget, what is left of the call's deadline. Names are
	// those of b.Charges, as [descriptors.Namer] makes them; the name of a fixed window lacks the
	// window's start. An error, of either, means that there is no decision.
	Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w Waiter) (done bool, err error)
	// Cancel gives back what charges hold that wait, of a batch that was decided: see
	// [limiter.Table.Cancel]. It neither waits for the store nor keeps b and names.
	Cancel(now limiter.Time, b *limiter.Batch, names [][]byte)
	// Reset makes a counter as new, and returns what was used of it.
	Reset(ctx context.Context, p *limiter.Policy, name []byte) (used uint64, err error)
	// Up reports whether the store answers.
	Up() bool
}

// Waiter waits for what a [Store] decides.
type Waiter interface {
	// Decided is called with the error in place of a decision, or nil. It does not block.
	Decided(err error)
}

// storeError says that a store did not decide.
type storeError struct{ err error }

func (e *storeError) Error() string { return fmt.Sprintf("no decision by the store: %v", e.err) }
func (e *storeError) Unwrap() error { return e.err }

// ask has the store decide c's batch. It reports whether that is done.
func (s *Service) ask(now limiter.Time, c *Call, w Waiter) (done bool, err error) {
	s.settings.Namer.Name(&c.plan, &c.decoder.req)
	c.plan.Batch.Budget = max(1, c.plan.Batch.Budget) // 0 would have it wait for the store as if it had no deadline
	c.undecided, c.service = true, s
	done, err = s.settings.Store.Decide(now, &c.plan.Batch, c.plan.Names, w)
	if err != nil {
		err = &storeError{err}
	}
	if done || err != nil {
		c.undecided = false
	}
	return done, err
}

// Decided implements [Waiter] for the goroutine that waits in [Service.Answer].
func (c *Call) Decided(err error) { c.decided <- err }

// Exceeded returns what counts hits of a charge that turn out to be beyond the limit when the store
// is back: see package store. Nobody else uses c meanwhile.
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

// await waits for what the store decides.
func (c *Call) await() error {
	err := <-c.decided
	c.undecided = false
	if err != nil {
		return &storeError{err}
	}
	return nil
}
