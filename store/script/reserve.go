package script

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// What is reserved beside a counter has the counter's name, without the start of a fixed window, and an h: it counts in each
// window.

// appendReserve appends the numbers of a charge that reserves, or that brings a lease back: the key of what is held, how many
// reservations there may be, for how long each, whether one without a cost is charged, the lease that is brought back,
// what a new one is made of, what a hit of a bucket costs, the hits, and for how long a reservation is held
// at most under any rule.
func (c *Call) appendReserve(at *charge, from *limiter.Charge, name []byte) {
	start := len(c.buf)
	c.buf = append(append(c.buf, name...), 'h') // LeaseName
	at.holdKey, _ = c.keyIndex(c.tail(start))   // not the first: that is the counter
	hold := c.Keys[at.holdKey]
	lease := uint64(0)
	if at.lease = NewLease(hold, 0); from.Refund && IsLease(hold, from.Hits) {
		lease = from.Hits
	}
	p := from.Policy
	at.companionArg = len(c.args)
	c.args = append(c.args, "", c.number(int64(p.Reserve.Reservations())), c.number(int64(p.Reserve.Life()/time.Second)),
		flag(!p.Reserve.Release()), c.number(int64(lease)),
		c.number(int64((at.lease-limiter.FirstLease)>>sealBits)), c.number(int64(sealOf(hold)))) //nolint:gosec // small
	if p.Algorithm == limiter.TokenBucket {
		k := p.Bucket()
		c.appendTicks(int64(k.Step), k.Fine) //nolint:gosec // below 2^62
	} else {
		c.args = append(c.args, "0", "0")
	}
	c.args = append(c.args, c.number(int64(min(from.Hits, maxHits))), c.number(int64((p.Reserve.Longest()+time.Second-1)/time.Second)))
}

// readReserved reads what is held beside a counter, and what a charge did there.
func (r *reply) readReserved(s *limiter.State) {
	s.Held, s.Reserved = uint64(max(r.next(), 0)), uint64(max(r.next(), 0))
	s.Lease, s.Settled = r.readLease(), uint64(max(r.next(), 0))
}
