package store

import (
	"context"
	"strings"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// Cancel releases the leases and undoes the delayed hits of a batch that Decide decided and whose
// caller has gone at the time now. A delayed hit can be undone only if no later hit has been
// scheduled behind it. Cancel does not wait for the store, and retains neither b nor names.
func (s *Store) Cancel(now limiter.Time, b *limiter.Batch, names [][]byte) {
	var delayed []delayedHit
	for i, name := range names[:min(len(names), len(b.Decisions))] {
		if !s.cancel(now, b, i, name) {
			delayed = append(delayed, delayedHit{i, b.Decisions[i].Charged})
		}
	}
	s.mirror.Cancel(s.main.time(now), b) // decisions of the fallback, and of requests that are too large
	for _, t := range delayed {
		if c := &b.Charges[t.charge]; b.Decisions[t.charge].Charged == 0 { // no later hit has been scheduled
			s.backendOf(c.Policy).ledger.subtract(names[t.charge], t.hits)
		}
	}
}

// A delayedHit is a charge with a delayed hit that cannot be undone in the store, because the store
// is unavailable.
type delayedHit struct {
	charge int
	hits   uint64
}

// cancel is Cancel for charge i. It reports false if the charge is delayed and the store is
// unavailable.
func (s *Store) cancel(now limiter.Time, b *limiter.Batch, i int, name []byte) (done bool) {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	lease := b.Lease(i)
	if lease == 0 && d.Wait == 0 {
		return true
	}
	f, slot := s.slotOf(now, c, name)
	if lease > 0 {
		s.releaseLease(f, slot, now, *c, name, lease)
		d.Charged = 0 // releaseLease updates the mirror, so Table.Cancel must not
		return true
	}
	req := newRequest()
	req.call.EncodeCancel(f.timeOf(slot, now, c.Policy, name), b, i, name)
	req.slot = slot
	return req.send(f.shardOf(slot), s.options.Timeout)
}

// A replyChan is a waiter for a goroutine that waits for the store.
type replyChan chan error

func (d replyChan) Decided(err error)       { d <- err }
func (replyChan) Exceeded(int) func(uint64) { return nil }

// A resetWaiter is the waiter of a reset. It keeps the unsynced hits of the counter until the store
// has decided, even if the caller has gone: hits before a reset must not be charged after it.
type resetWaiter struct {
	replyChan
	callerEnding

	store    *Store
	backend  *backend
	slot     uint16
	batch    *limiter.Batch
	now      limiter.Time // time of the reset, by the store's clock
	names    [2]string
	unsynced []*script.Unsynced
}

// removeUnsynced removes the unsynced hits of the counter from the ledger.
func (r *resetWaiter) removeUnsynced() {
	for _, name := range r.names {
		if d := r.backend.ledger.remove(name); d != nil {
			r.unsynced = append(r.unsynced, d)
		}
	}
}

// Decided implements [limiter.Waiter].
func (r *resetWaiter) Decided(err error) {
	if err == nil {
		r.removeUnsynced() // hits since the reset was sent
		r.store.denied.clear()
		if r.store.blocks != nil {
			r.store.blocks.drop(r.now, &r.batch.Charges[0])
		}
		r.store.mirror.Reset(r.now, r.batch, 0) // the fallback continues from here
	} else {
		r.backend.countDropped(r.backend.ledger.restore(r.unsynced))
		r.backend.requestSync(r.slot)
	}
	r.replyChan.Decided(err)
}

// fallsBack implements [ending].
func (*resetWaiter) fallsBack() bool { return false }

// Reset resets the counter of charge i of a batch at the time now, and returns the number of hits
// that it had. The name of a fixed window lacks its start: the current window is reset. Reset
// returns [ErrUnavailable] if the store is unavailable.
func (s *Store) Reset(
	ctx context.Context, now limiter.Time, of *limiter.Batch, names [][]byte, i int,
) (used uint64, err error) {
	p := new(of.Charges[i].Policy.Clone(nil))
	name := names[i] // the store may answer after the caller has gone
	b := &limiter.Batch{
		Charges: []limiter.Charge{{ID: of.Charges[i].ID, Policy: p, Reserve: p.Reserve != nil}}, Partition: of.Partition,
	}
	f, slot := s.slotOf(now, &b.Charges[0], name)
	req := newRequest()
	req.slotByStart = f.server.Nodes != nil && slotDependsOnStart(p, name)
	r := &resetWaiter{
		replyChan: make(replyChan, 1), store: s, backend: f, slot: slot, batch: b, now: f.timeOf(slot, now, p, name),
	}
	req.call.Encode(r.now, b, [][]byte{name}, s.options.Jitter)
	req.call.SetReset()
	r.names = [2]string{strings.Clone(req.call.Name(0)), strings.Clone(req.call.LeaseName(0))}
	req.decideFor(r, now, b)
	req.slot = slot
	if r.removeUnsynced(); !req.send(f.shardOf(slot), s.options.Timeout) {
		r.Decided(ErrUnavailable)
	}
	select {
	case err = <-r.replyChan:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, err
	}
	return b.Decisions[0].Before, nil
}
