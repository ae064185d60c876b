package store

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// While the store is unavailable, the fallback continues from the number of permits that were held
// at the store's last reply. It does not know their leases, and a request may end at another
// replica than the one at which it began. So any lease of the counter releases one permit here,
// once. Both acquired and released leases are recorded: after it has recovered, the store holds the
// leases that were acquired and not released.

// withLocalLeases calls decide, which decides b without the store, and replaces the leases of its
// decisions by leases that all replicas recognise. name returns the name that seals a charge's
// leases. If b was sent, the store may grant leases of its own for it. Those are always released.
func (f *backend) withLocalLeases(
	now limiter.Time, b *limiter.Batch, name func(i int) string, decide func() error,
) error {
	var returned []uint64
	for i := range b.Charges {
		c := &b.Charges[i]
		if !c.Refund || !c.Policy.UsesLeases() {
			continue
		}
		if returned == nil {
			returned = make([]uint64, len(b.Charges))
		}
		returned[i] = c.Hits
		if !script.IsLease(name(i), c.Hits) || f.ledger.returnLease(name(i), c.Hits) {
			c.Hits = 0
		}
	}
	err := decide()
	for i := range b.Charges {
		switch c := &b.Charges[i]; {
		case returned != nil && returned[i] > 0:
			if c.Hits > 0 && c.Policy.Reserve != nil {
				f.releaseMirrored(now, b, c, f.ledger.hitsUnder(name(i), c.Hits))
			}
			c.Hits = returned[i]
		case err == nil && b.Lease(i) > 0:
			lease := script.NewLease(name(i), 1)
			f.ledger.grantLease(name(i), lease)
			b.Stored().SetLease(i, lease)
		}
	}
	return err
}

// releaseMirrored subtracts hits from the reservations of the counter of c in the mirror.
func (f *backend) releaseMirrored(now limiter.Time, b *limiter.Batch, c *limiter.Charge, hits uint64) {
	if hits == 0 || f.options.Fallback != Local {
		return
	}
	companion := limiter.Batch{
		Charges: []limiter.Charge{{ID: c.ID, Policy: c.Policy.Reserve.HoldPolicy()}}, Partition: b.Partition,
	}
	var held [1]limiter.State
	companion.Stored().ReadStates(f.store.mirror, now, held[:])
	held[0].Hits -= min(held[0].Hits, hits)
	companion.Stored().MergeInto(f.store.mirror, now, 0, &held[0])
}

// releaseLease releases a lease that charge c of an earlier request acquired. No caller waits for
// it. It retains neither name nor c's policy, which the caller may reuse before the store has
// answered.
func (s *Store) releaseLease(f *backend, slot uint16, now limiter.Time, c limiter.Charge, name []byte, lease uint64) {
	c.Hits = lease
	c.Refund = true
	c.Reserve = false
	c.Mode = limiter.Enforce
	c.Policy = new(c.Policy.Clone(nil))
	b := &limiter.Batch{Charges: []limiter.Charge{c}}
	name = slices.Clone(name)
	if c.Policy.Reserve != nil { // its cost is 0
		b.Charges = append(b.Charges, limiter.Charge{ID: c.ID, Policy: c.Policy, Group: c.Group})
	}
	_, _ = s.decide(f, slot, now, b, [][]byte{name, name}, discard{}, s.options.maxWait(0), false) // otherwise it is recorded
}

// A discard is a waiter that ignores the decision.
type discard struct{}

func (discard) Decided(error)             {}
func (discard) Exceeded(int) func(uint64) { return nil }
