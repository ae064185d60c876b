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

// leased has decide decide b without the store, and makes the leases of that what they are everywhere. name returns the
// name that seals a charge's leases. They are not those that the store may give for b, if it was asked: what it holds under
// these is given back, whatever becomes of the request.
func (f *fleet) leased(now limiter.Time, b *limiter.Batch, name func(i int) string, decide func() error) error {
	var brought []uint64
	for i := range b.Charges {
		c := &b.Charges[i]
		if !c.Refund || !c.Policy.UsesLeases() {
			continue
		}
		if brought == nil {
			brought = make([]uint64, len(b.Charges))
		}
		if brought[i] = c.Hits; !script.IsLease(name(i), c.Hits) || f.owed.gave(name(i), c.Hits) {
			c.Hits = 0
		}
	}
	err := decide()
	for i := range b.Charges {
		switch c := &b.Charges[i]; {
		case brought != nil && brought[i] > 0:
			if c.Hits > 0 && c.Policy.Reserve != nil {
				f.unreserve(now, b, c, f.owed.took(name(i), c.Hits))
			}
			c.Hits = brought[i]
		case err == nil && b.Lease(i) > 0:
			b.Stored().SetLease(i, script.NewLease(name(i), 1))
		}
	}
	return err
}

// unreserve has the mirror hold fewer hits beside the counter of c.
func (f *fleet) unreserve(now limiter.Time, b *limiter.Batch, c *limiter.Charge, hits uint64) {
	if hits == 0 || f.options.Fallback != Local {
		return
	}
	beside := limiter.Batch{Charges: []limiter.Charge{{ID: c.ID, Policy: c.Policy.Reserve.HoldPolicy()}}, Partition: b.Partition}
	var held [1]limiter.State
	beside.Stored().ReadStates(f.options.Table, now, held[:])
	held[0].Hits -= min(held[0].Hits, hits)
	beside.Stored().MergeInto(f.options.Table, now, 0, &held[0])
}

// giveBack gives back a lease that charge c of an earlier request took, for which nobody waits. It keeps neither name nor
// c's policy, which the caller may use again before the store has answered.
func (s *Store) giveBack(f *fleet, slot uint16, now limiter.Time, c limiter.Charge, name []byte, lease uint64) {
	c.Hits, c.Refund, c.Reserve, c.Mode, c.Policy = lease, true, false, limiter.Enforce, new(c.Policy.Clone(nil))
	b := &limiter.Batch{Charges: []limiter.Charge{c}}
	if name = slices.Clone(name); c.Policy.Reserve != nil { // it has cost nothing
		b.Charges = append(b.Charges, limiter.Charge{ID: c.ID, Policy: c.Policy, Group: c.Group})
	}
	_, _ = s.decide(f, slot, now, b, [][]byte{name, name}, nobody{}, s.options.wait(0), false) // else it is owed
}

// nobody waits for what need not be known.
type nobody struct{}

func (nobody) Decided(error)             {}
func (nobody) Exceeded(int) func(uint64) { return nil }
