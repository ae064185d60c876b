package store

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// While the store is away, the fallback goes on from as many places as the store last said were held. It does not know
// whose they are, and the end of a request may come to another replica than its begin. So whatever lease of the
// counter comes gives back a place here, once, and both ends are owed to the store: what was taken and not given
// back is held there when it is back, and what was given back is not.

// withLocalLeases has decide decide b without the store, and makes the leases of that what they are everywhere. name returns the
// name that seals a charge's leases. They are not those that the store may give for b, if it was asked: what it holds under
// these is given back, whatever becomes of the request.
func (f *backend) withLocalLeases(now limiter.Time, b *limiter.Batch, name func(i int) string, decide func() error) error {
	var brought []uint64
	for i := range b.Charges {
		c := &b.Charges[i]
		if !c.Refund || !c.Policy.Leases() {
			continue
		}
		if brought == nil {
			brought = make([]uint64, len(b.Charges))
		}
		if brought[i] = c.Hits; !script.IsLease(name(i), c.Hits) || f.ledger.wasReleased(name(i), c.Hits) {
			c.Hits = 0
		}
	}
	err := decide()
	for i := range b.Charges {
		switch c := &b.Charges[i]; {
		case brought != nil && brought[i] > 0:
			if c.Hits > 0 && c.Policy.Reserve != nil {
				f.releaseMirrored(now, b, c, f.ledger.hitsUnder(name(i), c.Hits))
			}
			c.Hits = brought[i]
		case err == nil && b.Lease(i) > 0:
			b.Stored().SetLease(i, script.NewLease(name(i), 1))
		}
	}
	return err
}

// releaseMirrored has the mirror hold fewer hits beside the counter of c.
func (f *backend) releaseMirrored(now limiter.Time, b *limiter.Batch, c *limiter.Charge, hits uint64) {
	if hits == 0 || f.options.Fallback != Local {
		return
	}
	beside := limiter.Batch{Charges: []limiter.Charge{{ID: c.ID, Policy: c.Policy.Reserve.Hold()}}, Partition: b.Partition}
	var held [1]limiter.State
	beside.Stored().Find(f.options.Table, now, held[:])
	held[0].Hits -= min(held[0].Hits, hits)
	beside.Stored().Adopt(f.options.Table, now, 0, &held[0])
}

// releaseLease gives back a lease that charge c of an earlier request took, for which nobody waits. It keeps neither name nor
// c's policy, which the caller may use again before the store has answered.
func (s *Store) releaseLease(f *backend, slot uint16, now limiter.Time, c limiter.Charge, name []byte, lease uint64) {
	c.Hits, c.Refund, c.Reserve, c.Mode, c.Policy = lease, true, false, limiter.Enforce, new(c.Policy.Bare(nil))
	b := &limiter.Batch{Charges: []limiter.Charge{c}}
	if name = slices.Clone(name); c.Policy.Reserve != nil { // it has cost nothing
		b.Charges = append(b.Charges, limiter.Charge{ID: c.ID, Policy: c.Policy, Group: c.Group})
	}
	_, _ = s.decide(f, slot, now, b, [][]byte{name, name}, discard{}, s.options.maxWait(0), false) // else it is owed
}

// discard waits for what need not be known.
type discard struct{}

func (discard) Decided(error)             {}
func (discard) Exceeded(int) func(uint64) { return nil }
