package script

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// The key of a counter's reservations is its name, without the start of a fixed window, and an h:
// they count in each window.

// appendReserve appends the arguments of a charge that reserves, or that returns a lease: the key
// of the reservations, their maximum number, their duration, whether one without a cost is charged,
// the returned lease, the nonce and the seal of a new one, the cost of a hit of a bucket, the hits,
// and the longest duration of a reservation under any rule.
func (c *Call) appendReserve(at *charge, from *limiter.Charge, name []byte) {
	start := len(c.buf)
	c.buf = append(append(c.buf, name...), 'h') // LeaseName
	at.holdKey, _ = c.keyIndex(c.tail(start))   // not the first: that is the counter
	hold := c.Keys[at.holdKey]
	lease := uint64(0)
	at.lease = NewLease(hold, 0)
	if from.Refund && IsLease(hold, from.Hits) {
		lease = from.Hits
	}
	p := from.Policy
	at.companionArg = len(c.args)
	c.args = append(c.args, "", c.number(int64(p.Reserve.MaxReservations())),
		c.number(int64(p.Reserve.Life()/time.Second)),
		flag(!p.Reserve.ReleasesWithoutCost()), c.number(int64(lease)),
		c.number(int64((at.lease-limiter.FirstLease)>>sealBits)), c.number(int64(sealOf(hold)))) //nolint:gosec // small
	if p.Algorithm == limiter.TokenBucket {
		k := p.Bucket()
		c.appendTicks(int64(k.Step), k.Fine()) //nolint:gosec // below 2^62
	} else {
		c.args = append(c.args, "0", "0")
	}
	c.args = append(c.args, c.number(int64(min(from.Hits, maxHits))),
		c.number(int64((p.Reserve.LongestLife()+time.Second-1)/time.Second)))
}

// readReserved reads the reservations of a counter, and the lease that a charge granted or settled.
func (r *reply) readReserved(s *limiter.State) {
	s.HeldHits = uint64(max(r.next(), 0))
	s.Reservations = uint64(max(r.next(), 0))
	s.Lease = r.readLease()
	s.SettledHits = uint64(max(r.next(), 0))
}
