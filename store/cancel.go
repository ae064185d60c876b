package store

import (
	"context"
	"strings"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// Cancel gives back what charges of b hold that wait or have a lease, of a batch that Decide decided and whose caller
// went away at the time now. A turn comes back only if no later one has been given out. It does
// not wait for the store, and keeps neither b nor names.
func (s *Store) Cancel(now limiter.Time, b *limiter.Batch, names [][]byte) {
	var turns []turn
	for i, name := range names[:min(len(names), len(b.Decisions))] {
		if !s.cancel(now, b, i, name) {
			turns = append(turns, turn{i, b.Decisions[i].Charged})
		}
	}
	s.options.Table.Cancel(s.fleet.time(now), b) // what the fallback decided, or the mirror holds
	for _, t := range turns {
		if c := &b.Charges[t.charge]; b.Decisions[t.charge].Charged == 0 { // no later turn has been given out
			s.fleetOf(c.Policy).owed.less(names[t.charge], t.hits)
		}
	}
}

// A turn is one that the store is not told to give back, since it is away.
type turn struct {
	charge int
	hits   uint64
}

// cancel is Cancel for charge i. It reports false if the charge has a turn and the store is away.
func (s *Store) cancel(now limiter.Time, b *limiter.Batch, i int, name []byte) (done bool) {
	c, d, lease := &b.Charges[i], &b.Decisions[i], b.Lease(i)
	if lease == 0 && d.Wait == 0 {
		return true
	}
	f, slot := s.slotOf(now, c, name)
	if lease > 0 {
		s.giveBack(f, slot, now, *c, name, lease)
		d.Charged = 0 // so the table, which does so too, does it once
		return true
	}
	a := newAsk()
	a.call.Cancel(f.timeOf(slot, now, c.Policy, name), b, i, name)
	a.slot = slot
	return a.send(f.lane(slot), s.options.Timeout)
}

// An answer is a waiter of whoever can wait for the store.
type answer chan error

func (d answer) Decided(err error)       { d <- err }
func (answer) Exceeded(int) func(uint64) { return nil }

// A resetting is the waiter of a reset. It has what the counter owes until the store has decided, whether the caller waits
// for that or not: hits before a reset must not be charged after it.
type resetting struct {
	answer
	store *Store
	fleet *fleet
	slot  uint16
	batch *limiter.Batch
	now   limiter.Time // by the store's clock
	names [2]string
	owed  []*script.Debt
}

// begin takes what the counter owes.
func (r *resetting) begin() {
	for _, name := range r.names {
		if d := r.fleet.owed.drop(name); d != nil {
			r.owed = append(r.owed, d)
		}
	}
}

// Decided implements [limiter.Waiter].
func (r *resetting) Decided(err error) {
	if err == nil {
		r.begin() // what was owed meanwhile
		r.store.full.forget()
		r.store.options.Table.Reset(r.now, r.batch, 0) // the fallback goes on from here
	} else {
		r.fleet.forgot(r.fleet.owed.putBack(r.owed))
		r.fleet.nudge(r.slot)
	}
	r.answer.Decided(err)
}

// Reset makes the counter of charge i of a batch as new at the time now, and returns what was used of it. The name of a fixed
// window lacks its start: the current one is reset. It returns [ErrAway] if the store is away.
func (s *Store) Reset(ctx context.Context, now limiter.Time, of *limiter.Batch, names [][]byte, i int) (used uint64, err error) {
	p, name := new(of.Charges[i].Policy.Clone(nil)), names[i] // the store may answer when the caller has gone
	b := &limiter.Batch{Charges: []limiter.Charge{{ID: of.Charges[i].ID, Policy: p, Reserve: p.Reserve != nil}}, Partition: of.Partition}
	f, slot := s.slotOf(now, &b.Charges[0], name)
	a := newAsk()
	a.startSays = f.server.Nodes != nil && startSaysSlot(p, name)
	r := &resetting{answer: make(answer, 1), store: s, fleet: f, slot: slot, batch: b, now: f.timeOf(slot, now, p, name)}
	a.call.Encode(r.now, b, [][]byte{name}, s.options.Jitter)
	a.call.Zero()
	r.names = [2]string{strings.Clone(a.call.Name(0)), strings.Clone(a.call.LeaseName(0))}
	a.now, a.batch, a.waiter, a.strict, a.slot = now, b, r, true, slot
	if r.begin(); !a.send(f.lane(slot), s.options.Timeout) {
		r.Decided(ErrAway)
	}
	select {
	case err = <-r.answer:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, err
	}
	return b.Decisions[0].Before, nil
}
