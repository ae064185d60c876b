package script

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A lease of a store is limiter.FirstLease, a nonce of 20 bits, and a seal of 8 bits that depends on the nonce and on the
// name of the counter. A process gives each nonce once before it gives one again, from a random one on. By the seal every replica tells a lease of the counter from one of another,
// without asking: a descriptor with several limits brings the lease of each to all of them. The script makes leases
// too, if one is in use: see counters.lua.
const (
	nonces   = 1 << 20
	sealBits = 8
)

// sealOf returns what makes the seals of a counter's leases.
func sealOf[N string | []byte](name N) uint64 {
	h := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return uint64(h) % nonces
}

// leaseOf returns the lease of a nonce.
func leaseOf(seal, nonce uint64) uint64 {
	x := nonce + seal
	return limiter.FirstLease + nonce<<sealBits + x*x>>13&(1<<sealBits-1)
}

// The leases that this process gives.
var (
	firstNonce = rand.Uint64() //nolint:gosec // no secret
	given      atomic.Uint64
)

// NewLease returns a lease for the counter of a name, which hardly ever is in use.
func NewLease[N string | []byte](name N) uint64 {
	const step = 648055 // odd, so that all nonces come; those of processes do not follow each other
	return leaseOf(sealOf(name), (firstNonce+step*given.Add(1))%nonces)
}

// IsLease reports whether a lease may be of the counter of a name. One of another counter hardly ever is.
func IsLease[N string | []byte](name N, lease uint64) bool {
	return lease >= limiter.FirstLease && lease <= limiter.LastLease && lease == leaseOf(sealOf(name), (lease-limiter.FirstLease)>>sealBits)
}

// place appends the numbers of a charge on a concurrency limit: 1 to take a place or the lease to give one back, or 0,
// the limit, the window, and what a new lease is made of.
func (c *Call) place(at *charge, from *limiter.Charge, hits uint64) {
	name := c.Keys[at.key]
	at.lease = NewLease(name)
	switch {
	case !from.Refund:
		hits = min(hits, 1)
	case !IsLease(name, hits):
		hits = 0
	}
	p := from.Policy
	c.args = append(c.args, c.number(int64(hits)), c.number(int64(p.Capacity())), c.number(int64(p.Window/time.Second)), //nolint:gosec // small
		c.number(int64((at.lease-limiter.FirstLease)>>sealBits)), c.number(int64(sealOf(name)))) //nolint:gosec // small
}

// Lease returns the lease that charge i proposes, which the store gives unless another request has it.
func (c *Call) Lease(i int) uint64 { return c.charges[i].lease }

// Unheld reports whether d is a place that the store, which has decided c, does not hold.
func (d *Debt) Unheld(c *Call) bool {
	return len(d.taken) > 0 && !slices.ContainsFunc(c.Found, func(s limiter.State) bool { return s.Lease == d.taken[0].lease })
}

// A hold is a place that a replica gave while it was without the store.
type hold struct {
	lease uint64
	end   int64 // when it is free by itself, in milliseconds since 1970
}

// mostLeases is how many leases a counter is owed at most of either kind, and pieceOfLeases how many in one run.
const (
	mostLeases    = limiter.MaxLog
	pieceOfLeases = 100
)

// Leases is how many leases d has.
func (d *Debt) Leases() int { return len(d.taken) + len(d.given) }

// setLease makes d a place that charge i of b took at the time now, or one that it gave back. It reports false if
// that is none.
func (d *Debt) setLease(now limiter.Time, b *limiter.Batch, i int) bool {
	c := &b.Charges[i]
	lease := b.Lease(i)
	if c.Refund {
		d.given = append(d.given[:0], c.Hits)
		return true
	}
	end := (now + limiter.Time(c.Policy.Window) + limiter.Time(time.Millisecond) - 1) / limiter.Time(time.Millisecond)
	d.taken, d.Hits, d.Admitted = append(d.taken[:0], hold{lease, int64(end)}), 1, 1
	return lease > 0
}

// addLeases adds those of other. What was taken and is given back is owed no more.
func (d *Debt) addLeases(other *Debt) {
	for _, h := range other.taken {
		if !slices.Contains(d.given, h.lease) { // else other was on its way to the store, which may hold it
			d.taken = append(d.taken, h)
		}
	}
	for _, lease := range other.given {
		n := len(d.taken)
		if d.taken = slices.DeleteFunc(d.taken, func(h hold) bool { return h.lease == lease }); len(d.taken) == n && !d.Gave(lease) {
			d.given = append(d.given, lease)
		}
	}
	now := int64(d.at) / int64(time.Millisecond)
	d.taken = slices.DeleteFunc(d.taken, func(h hold) bool { return h.end <= now })
	d.taken, d.given = d.taken[max(0, len(d.taken)-mostLeases):], d.given[max(0, len(d.given)-mostLeases):]
	d.Hits = uint64(len(d.taken))
	d.Admitted = d.Hits
}

// Gave reports whether d has a lease that was given back.
func (d *Debt) Gave(lease uint64) bool { return slices.Contains(d.given, lease) }

// Pieces returns d in as many debts as it takes runs.
func (d *Debt) Pieces() (all []*Debt) {
	for d.Leases() > pieceOfLeases {
		piece := *d
		piece.taken = d.taken[:min(len(d.taken), pieceOfLeases)]
		piece.given = d.given[:min(len(d.given), pieceOfLeases-len(piece.taken))]
		piece.Hits = uint64(len(piece.taken))
		piece.Admitted = piece.Hits
		d.taken, d.given = d.taken[len(piece.taken):], d.given[len(piece.given):]
		d.Hits = uint64(len(d.taken))
		d.Admitted = d.Hits
		all = append(all, &piece)
	}
	return append(all, d)
}

// owedLeases appends the leases of d: the window, how many were taken and how many given back, the taken ones with when
// they end, and the others.
func (c *Call) owedLeases(d *Debt) {
	c.args = append(c.args, "p", "", c.number(int64(d.Policy.Window/time.Second)), c.number(int64(len(d.taken))), c.number(int64(len(d.given))))
	for _, h := range d.taken {
		c.args = append(c.args, c.number(int64(h.lease)), c.number(h.end)) //nolint:gosec // a lease
	}
	for _, lease := range d.given {
		c.args = append(c.args, c.number(int64(lease))) //nolint:gosec // a lease
	}
}

// lease reads the lease that a charge took or gave back, 0 for none.
func (r *reply) lease() uint64 {
	lease := r.next()
	if lease != 0 && (lease < limiter.FirstLease || lease > limiter.LastLease) && r.Err == nil {
		r.Err = redis.BadReply("read the script's reply: %d is no lease", lease)
	}
	return uint64(lease) //nolint:gosec // not negative
}
