package limiter

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A nonceKey is the secret from which a table derives the nonces of its leases, so that a lease
// reveals nothing about others. A nonce is 16 bits of a hash of the key, the counter's ID, which is
// also secret, the time in nanoseconds, and the number of leases that the counter has granted. The
// hash is three multiplications, not a cipher, for speed. To predict a nonce an attacker would have
// to derive the five words of the key from 16 bits per own lease, while 65,536 guesses find any
// nonce.
type nonceKey [5]uint64

func newNonceKey() (k nonceKey) {
	var b [40]byte
	_, _ = rand.Read(b[:]) // never fails
	for i := range k {
		k[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return k
}

// salt returns the hash input common to all leases of a counter at one time.
func (k *nonceKey) salt(id identity.ID, at Time) uint64 {
	return fold(id.Lo^k[0], id.Hi^uint64(at)^k[1]) //nolint:gosec // bits
}

// nonce returns the nonce of a lease. granted is the number of leases that the counter has granted,
// modulo 2^16.
func (k *nonceKey) nonce(salt, granted uint64) uint64 {
	return fold(fold(salt^k[2], granted&nonceMask^k[3]), k[4]) >> (64 - nonceBits)
}

// fold returns the xor of both halves of a product.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
