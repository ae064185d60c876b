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
// name of a charge's counter. call, if there is one, has asked the store, which may have given the leases that it proposed.
func (f *fleet) leased(b *limiter.Batch, name func(i int) string, call *script.Call, decide func() error) error {
	const ignored = 1 << 63 // no lease has it
	leases := false
	for i := range b.Charges {
		c := &b.Charges[i]
		if !c.Policy.Leases() {
			continue
		}
		leases = true
		if c.Refund && c.Hits < ignored && !(script.IsLease(name(i), c.Hits) && !f.owed.gave(name(i), c.Hits)) {
			c.Hits |= ignored
		}
	}
	err := decide()
	for i := range b.Charges {
		switch c := &b.Charges[i]; {
		case !leases || !c.Policy.Leases():
		case c.Refund:
			c.Hits &^= ignored
		case err == nil && b.Lease(i) > 0 && call != nil:
			b.Stored().SetLease(i, call.Lease(i))
		case err == nil && b.Lease(i) > 0:
			b.Stored().SetLease(i, script.NewLease(name(i)))
		}
	}
	return err
}

// giveBack gives back a lease that charge c of an earlier request took, for which nobody waits.
func (s *Store) giveBack(f *fleet, slot uint16, now limiter.Time, c limiter.Charge, name []byte, lease uint64) {
	c.Hits, c.Refund, c.Mode = lease, true, limiter.Enforce
	b := &limiter.Batch{Charges: []limiter.Charge{c}}
	_, _ = s.decide(f, slot, now, b, [][]byte{slices.Clone(name)}, nobody{}, false) // else it is owed
}

// nobody waits for what need not be known.
type nobody struct{}

func (nobody) Decided(error)             {}
func (nobody) Exceeded(int) func(uint64) { return nil }
