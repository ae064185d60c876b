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
// name of the counter. The nonce is odd if a replica that was without the store gave the lease. A process gives each nonce
// once before it gives one again, from a random one on. By the seal every replica tells a lease of the counter from one of
// another, without asking: a descriptor with several limits brings the lease of each to all of them. The script makes leases
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

// NewLease returns a lease for the counter of a name, which hardly ever is in use. It is one that the store gives, or, if
// local is 1, one that a replica gives without it.
func NewLease[N string | []byte](name N, local uint64) uint64 {
	const step = 648055 // odd, so that all nonces come; those of processes do not follow each other
	return leaseOf(sealOf(name), (firstNonce+step*given.Add(1))%(nonces/2)*2+local)
}

// IsLease reports whether a lease may be of the counter of a name. One of another counter hardly ever is.
func IsLease[N string | []byte](name N, lease uint64) bool {
	return lease >= limiter.FirstLease && lease <= limiter.LastLease && lease == leaseOf(sealOf(name), (lease-limiter.FirstLease)>>sealBits)
}

// place appends the numbers of a charge on a concurrency limit: 1 to take a place or the lease to give one back, or 0,
// the limit, the window, and what a new lease is made of.
func (c *Call) place(at *charge, from *limiter.Charge, hits uint64) {
	name := c.Keys[at.key]
	at.lease = NewLease(name, 0)
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

// LeaseName returns the name that seals the leases of charge i.
func (c *Call) LeaseName(i int) string {
	if at := &c.charges[i]; at.hold > 0 {
		return c.Keys[at.hold]
	}
	return c.Name(i)
}

// LeaseName returns the name that seals the leases of a policy's counters, of which the name lacks the start of a fixed window.
func LeaseName(p *limiter.Policy, name []byte) string {
	if p.Reserve != nil {
		return string(append(slices.Clone(name), 'h'))
	}
	return string(name)
}

// lease reads the lease that a charge took or gave back, 0 for none.
func (r *reply) lease() uint64 {
	lease := r.next()
	if lease != 0 && (lease < limiter.FirstLease || lease > limiter.LastLease) && r.Err == nil {
		r.Err = redis.BadReply("read the script's reply: %d is no lease", lease)
	}
	return uint64(lease) //nolint:gosec // not negative
}
