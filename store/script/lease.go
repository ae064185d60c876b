package script

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A lease of a store is limiter.FirstLease plus a nonce of 20 bits and a seal of 8 bits, which
// depends on the nonce and on the name of the counter. The nonce is odd if a replica granted the
// lease without the store. A process uses all nonces before it repeats one, in a secret order, so a
// lease reveals nothing about others. By the seal every replica recognises the leases of a counter
// without asking the store: a descriptor with several limits returns the lease of each to all of
// them. The script makes another lease if the proposed one is in use: see counters.lua.
const (
	nonceBits = 20
	nonces    = 1 << nonceBits
	sealBits  = 8
)

// sealOf returns the number from which the seals of a counter's leases are made.
func sealOf[N string | []byte](name N) uint64 {
	h := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return uint64(h) % nonces
}

// leaseOf returns the lease with a nonce.
func leaseOf(seal, nonce uint64) uint64 {
	x := nonce + seal
	return limiter.FirstLease + nonce<<sealBits + x*x>>13&(1<<sealBits-1)
}

// The leases that this process grants.
var (
	nonceSequence = newNonceOrder()
	leaseCount    atomic.Uint64
)

// A nonceOrder is a secret permutation of all numbers of 19 bits, from which the nonces of either
// kind are made: a Feistel network whose rounds have keys of their own.
type nonceOrder [8][2]uint64

func newNonceOrder() (o nonceOrder) {
	_ = binary.Read(rand.Reader, binary.LittleEndian, &o) // which never fails
	return o
}

// nth returns the nth number of the permutation, modulo 2^19.
func (o *nonceOrder) nth(n uint64) uint64 {
	const low, high = 9, nonceBits - 1 - 9 // bits of the halves
	l := n & (1<<low - 1)
	r := n >> low & (1<<high - 1)
	for i := 0; i < len(o); i += 2 {
		l ^= fold(r, &o[i]) & (1<<low - 1)
		r ^= fold(l, &o[i+1]) & (1<<high - 1)
	}
	return r<<low | l
}

// fold returns bits that depend on all bits of a number and of a key.
func fold(n uint64, key *[2]uint64) uint64 {
	hi, lo := bits.Mul64(n^key[0], key[1])
	hi, lo = bits.Mul64(hi^lo, key[0]^key[1])
	return hi ^ lo
}

// NewLease returns a lease for the named counter that is almost certainly not in use. local is 0
// for a lease of the store, and 1 for one that a replica grants without it.
func NewLease[N string | []byte](name N, local uint64) uint64 {
	return leaseOf(sealOf(name), nonceSequence.nth(leaseCount.Add(1))*2+local)
}

// IsLease reports whether a lease may be one of the named counter's. A lease of another counter
// almost never is.
func IsLease[N string | []byte](name N, lease uint64) bool {
	return lease >= limiter.FirstLease && lease <= limiter.LastLease &&
		lease == leaseOf(sealOf(name), (lease-limiter.FirstLease)>>sealBits)
}

// appendPermit appends the arguments of a charge on a concurrency limit: 1 to acquire a permit, or
// the lease to release, or 0; the limit; the window; and the nonce and the seal of a new lease.
func (c *Call) appendPermit(at *charge, from *limiter.Charge, hits uint64) {
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
	if at := &c.charges[i]; at.holdKey > 0 {
		return c.Keys[at.holdKey]
	}
	return c.Name(i)
}

// LeaseName returns the name that seals the leases of a policy's counters. name lacks the start of
// a fixed window.
func LeaseName(p *limiter.Policy, name []byte) string {
	if p.Reserve != nil {
		return string(append(slices.Clone(name), 'h'))
	}
	return string(name)
}

// readLease reads the lease that a charge acquired or released, 0 for none.
func (r *reply) readLease() uint64 {
	lease := r.next()
	if lease != 0 && (lease < limiter.FirstLease || lease > limiter.LastLease) && r.Err == nil {
		r.Err = redis.BadReply("read the script's reply: %d is not a lease", lease)
	}
	return uint64(lease) //nolint:gosec // not negative
}
