package store

import (
	"context"
	"strings"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Cancel gives back what charges of b hold that wait, of a batch that Decide decided and whose caller
// went away at the time now. A turn comes back only if no later one has been given out. It does
// not wait for the store, and keeps neither b nor names.
func (s *Store) Cancel(now limiter.Time, b *limiter.Batch, names [][]byte) {
	for i := range b.Decisions {
		if b.Decisions[i].Wait > 0 {
			f, slot := s.slotOf(now, &b.Charges[i], names[i])
			a := newAsk()
			a.call.reset()
			a.call.cancel(f.time(now), b, i, names[i])
			a.slot = slot
			a.send(f.lane(slot), s.options.Timeout)
		}
	}
	s.options.Table.Cancel(s.fleet.time(now), b) // what the fallback decided, or the mirror holds
}

// cancel appends that charge i, which waits, gives its turn back.
func (c *call) cancel(now limiter.Time, b *limiter.Batch, i int, name []byte) {
	k, turn := b.Charges[i].Policy.Bucket(), b.Stored().Turn(now, i)
	key, _ := c.counter(c.text(name))
	c.cost = costOf(b.Charges[i].Policy, 0)
	c.charges = append(c.charges, charge{algorithm: limiter.LeakyBucket, key: key, first: true, place: len(c.args) + 1})
	c.args = append(c.args, "b", "", "x", flag(k.Fine))
	c.span(int64(k.Need(b.Decisions[i].Charged)), k.Fine) //nolint:gosec // at most 2^63-1
	c.amount(instant(turn.Time, turn.Sixteenths&15))
	c.args = append(c.args, "0", "0")
}

// A done is a waiter of whoever can wait for the store.
type done chan error

func (d done) Decided(err error)       { d <- err }
func (done) Exceeded(int) func(uint64) { return nil }

// Reset makes the counter of charge i of a batch as new at the time now, and returns what was used of it. The name of a fixed
// window lacks its start: the current one is reset. It returns [ErrAway] if the store is away.
func (s *Store) Reset(ctx context.Context, now limiter.Time, of *limiter.Batch, names [][]byte, i int) (used uint64, err error) {
	b, name := &limiter.Batch{Charges: []limiter.Charge{{Policy: of.Charges[i].Policy}}}, names[i]
	f, slot := s.slotOf(now, &b.Charges[0], name)
	a := newAsk()
	a.call.encode(f.time(now), b, [][]byte{name}, s.options.Jitter)
	a.call.args[a.call.charges[0].place+1] = "z"
	key := strings.Clone(a.call.keys[0])
	answer := make(done, 1)
	a.now, a.batch, a.waiter, a.strict, a.slot = now, b, answer, true, slot
	if !a.send(f.lane(slot), s.options.Timeout) {
		return 0, ErrAway
	}
	select {
	case err = <-answer:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, err
	}
	f.owed.forget(key)
	s.full.forget() // whoever resets a counter sees it at once
	return b.Decisions[0].Before, nil
}
