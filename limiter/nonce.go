package limiter

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A nonceKey is the secret from which a table makes the nonces of its leases, so that a lease reveals nothing about others.
// A nonce is 16 bits of a hash of the key, the ID of the counter, which is a secret too, the time in nanoseconds, and how
// many leases the counter has given. The hash is not a cipher: it is three products, as fast as a request needs it. To
// foretell a nonce one would have to find the five words of the key in 16 bits of each of one's own leases, while 65,536
// guesses find any nonce.
type nonceKey [5]uint64

func newNonceKey() (k nonceKey) {
	var b [40]byte
	_, _ = rand.Read(b[:]) // which never fails
	for i := range k {
		k[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return k
}

// salt returns what is common to all leases of a counter at one time.
func (k *nonceKey) salt(id identity.ID, at Time) uint64 {
	return fold(id.Lo^k[0], id.Hi^uint64(at)^k[1]) //nolint:gosec // bits
}

// nonce returns the nonce of a lease. given is the number of leases that the counter has given, modulo 2^16.
func (k *nonceKey) nonce(salt, given uint64) uint64 {
	return fold(fold(salt^k[2], given&nonceMask^k[3]), k[4]) >> (64 - nonceBits)
}

// fold returns both halves of a product, the one over the other.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
