package store

import (
	"context"
	"strings"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Cancel gives back what charges of b hold that wait or have a lease, of a batch that Decide decided and whose caller
// went away at the time now. A turn comes back only if no later one has been given out. It does
// not wait for the store, and keeps neither b nor names.
func (s *Store) Cancel(now limiter.Time, b *limiter.Batch, names [][]byte) {
	for i, name := range names[:min(len(names), len(b.Decisions))] {
		s.cancel(now, b, i, name)
	}
	s.options.Table.Cancel(s.fleet.time(now), b) // what the fallback decided, or the mirror holds
}

// cancel is Cancel for charge i.
func (s *Store) cancel(now limiter.Time, b *limiter.Batch, i int, name []byte) {
	c, d, lease := &b.Charges[i], &b.Decisions[i], b.Lease(i)
	if lease == 0 && d.Wait == 0 {
		return
	}
	f, slot := s.slotOf(now, c, name)
	if lease > 0 {
		s.giveBack(f, slot, now, *c, name, lease)
		d.Charged = 0 // so the table, which does so too, does it once
		return
	}
	a := newAsk()
	a.call.Cancel(f.timeOf(slot, now, c.Policy, name), b, i, name)
	a.slot = slot
	a.send(f.lane(slot), s.options.Timeout)
}

// An answer is a waiter of whoever can wait for the store.
type answer chan error

func (d answer) Decided(err error)       { d <- err }
func (answer) Exceeded(int) func(uint64) { return nil }

// Reset makes the counter of charge i of a batch as new at the time now, and returns what was used of it. The name of a fixed
// window lacks its start: the current one is reset. It returns [ErrAway] if the store is away.
func (s *Store) Reset(ctx context.Context, now limiter.Time, of *limiter.Batch, names [][]byte, i int) (used uint64, err error) {
	p, name := new(of.Charges[i].Policy.Bare(nil)), names[i] // the store may answer when the caller has gone
	b := &limiter.Batch{Charges: []limiter.Charge{{Policy: p, Reserve: p.Reserve != nil}}}
	f, slot := s.slotOf(now, &b.Charges[0], name)
	a := newAsk()
	a.call.Encode(f.timeOf(slot, now, p, name), b, [][]byte{name}, s.options.Jitter)
	a.call.Zero()
	key, held := strings.Clone(a.call.Name(0)), strings.Clone(a.call.LeaseName(0))
	decided := make(answer, 1)
	a.now, a.batch, a.waiter, a.strict, a.slot = now, b, decided, true, slot
	if !a.send(f.lane(slot), s.options.Timeout) {
		return 0, ErrAway
	}
	select {
	case err = <-decided:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, err
	}
	f.owed.forget(key)
	f.owed.forget(held)
	s.full.forget() // whoever resets a counter sees it at once
	return b.Decisions[0].Before, nil
}
