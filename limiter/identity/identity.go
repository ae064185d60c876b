// Package identity hashes the names of counters to 128-bit IDs with a secret key.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// An ID identifies a counter: 128 bits of a keyed hash. Clients that do not know the key cannot
// choose values with colliding IDs; see [Hasher].
type ID struct{ Hi, Lo uint64 }

// KeyBytes is the length of a [Key].
const KeyBytes = 16

// A Key is the secret key of a hash.
type Key [KeyBytes]byte

// NewKey returns a random key.
func NewKey() Key {
	var k Key
	_, _ = rand.Read(k[:]) // never fails: crypto/rand ends the process instead
	return k
}

// A Hasher hashes a list of items, numbers and byte strings, to an [ID]. Each item has a position
// in the list: [Hasher.AddWord] and [Hasher.AddBytes] use the next position, [Hasher.AddWordAt] and
// [Hasher.AddBytesAt] any position, in any order. Lists that differ in the positions in use, or in
// the kind, length or contents of an item, are different inputs, however their bytes would
// concatenate. A position must be used only once; this is not checked. A Hasher is a value: copying
// it preserves the items added so far, so that a common prefix is hashed only once. It does not
// allocate.
//
// The hash is universal (Carter and Wegman, "Universal classes of hash functions", 1979) and
// computed twice with independent secrets, for Hi and for Lo. Two lists that are chosen without
// knowledge of an ID have the same Hi, the same tag of 60 bits or the same slot in a table with a
// probability of at most 2^-60 above that of chance, and independently the same holds for Lo. For
// each item:
//
//   - A string is hashed by NH (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: fast and
//     secure message authentication", 1999): with 64-bit words m, padded with zeros, and secrets k,
//     the hash is the sum of (m0+k0)(m1+k1) and the length, modulo 2^128. Two strings collide with
//     a probability of at most 2^-63.
//   - Both halves of the hash are multiplied by 128-bit secrets of their position, and all products
//     are added modulo 2^128. The high half of the sum is strongly universal: for two lists it is a
//     pair of independent uniform numbers (multilinear hashing; Lemire and Kaser, "Strongly
//     universal string hashing is fast", 2014).
//   - A fixed bijection mixes the sum. It changes no bound, but makes structured sums look random
//     in the bits that select a slot.
//
// Strings of more than 256 bytes are split into pieces of 256, whose hashes are the coefficients of
// a polynomial modulo 2^61-1 at a secret point. The bound of 2^-60 is then 2^-59 times the number
// of pieces.
//
// A client can observe only whether two of its values share a counter, which they do not, and which
// counters were evicted from a full table. The latter may reveal which values share a block, so
// that these can evict each other sooner than random values. A flood has the same effect.
type Hasher struct {
	keys *hashKeys
	// a and b are the sums for Hi and Lo.
	a, b sum128
	next int
}

// A sum128 is a number modulo 2^128.
type sum128 struct{ hi, lo uint64 }

const (
	precomputed = 64 // number of positions with precomputed secrets
	nhBytes     = 256
)

// hashKeys are the secrets derived from a key.
type hashKeys struct {
	key Key
	// nh has two secrets for a and two for b, for each two words of a string.
	nh        [nhBytes / 16][4]uint64
	positions [precomputed]positionKeys
	// point is where the polynomials for a and b are evaluated.
	point [2]uint64
}

// positionKeys are the factors for the low and the high half of an item.
type positionKeys struct{ aLo, aHi, bLo, bHi sum128 }

// Labels for deriving secrets. Each is used for one purpose.
const (
	labelCommon   = "sluice common 01"
	labelPosition = "sluice place 001"
)

// Hasher returns an empty hasher. It takes about ten microseconds and allocates 4 KiB; copies of
// the hasher do neither.
func (k Key) Hasher() Hasher {
	keys := &hashKeys{key: k}
	var words [4]uint64
	for i := range keys.nh {
		keys.nh[i] = k.derive(labelCommon, i, 0)
	}
	for position := range keys.positions {
		keys.positions[position] = k.positionKeys(position)
	}
	words = k.derive(labelCommon, len(keys.nh), 0)
	keys.point = [2]uint64{words[0] & polyPrime, words[1] & polyPrime}
	words = k.derive(labelCommon, len(keys.nh)+1, 0)
	return Hasher{keys: keys, a: sum128{words[0], words[1]}, b: sum128{words[2], words[3]}}
}

// derive returns independent secrets for each label, number and part.
func (k Key) derive(label string, number int, part byte) [4]uint64 {
	var input [16 + len(labelCommon) + 9]byte
	copy(input[:], k[:])
	copy(input[16:], label)
	binary.LittleEndian.PutUint64(input[16+len(labelCommon):], uint64(number)) //nolint:gosec // not negative
	input[len(input)-1] = part
	sum := sha256.Sum256(input[:])
	var words [4]uint64
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(sum[8*i:])
	}
	return words
}

// positionKeys returns the secrets of a position.
func (k Key) positionKeys(position int) positionKeys {
	a := k.derive(labelPosition, position, 'a')
	b := k.derive(labelPosition, position, 'b')
	return positionKeys{
		aLo: sum128{a[0], a[1]}, aHi: sum128{a[2], a[3]},
		bLo: sum128{b[0], b[1]}, bHi: sum128{b[2], b[3]},
	}
}

// AddWord adds a number at the next position.
func (h *Hasher) AddWord(w uint64) {
	h.next++
	h.AddWordAt(h.next-1, w)
}

// AddBytes adds a byte string at the next position.
func (h *Hasher) AddBytes(b []byte) {
	h.next++
	h.AddBytesAt(h.next-1, b)
}

// AddWordAt adds a number at the given position.
func (h *Hasher) AddWordAt(position int, w uint64) {
	if uint(position) < precomputed {
		h.addItem(&h.keys.positions[position], sum128{1, w}, sum128{1, w})
		return
	}
	k := h.keys.key.positionKeys(position)
	h.addItem(&k, sum128{1, w}, sum128{1, w})
}

// AddBytesAt adds a byte string at the given position. Positions from 64 on take half a
// microsecond.
func (h *Hasher) AddBytesAt(position int, s []byte) {
	var a, b sum128
	if len(s) <= nhBytes {
		a, b = h.keys.hash(s)
	} else {
		a, b = h.keys.hashLong(s)
	}
	if uint(position) < precomputed {
		h.addItem(&h.keys.positions[position], a, b)
		return
	}
	k := h.keys.key.positionKeys(position)
	h.addItem(&k, a, b)
}

// Sum returns the ID of the items added so far. More items may be added afterwards.
func (h *Hasher) Sum() ID { return ID{Hi: mix(h.a.hi), Lo: mix(h.b.hi)} }

// hash returns NH of up to nhBytes, plus the length and one.
func (k *hashKeys) hash(s []byte) (a, b sum128) {
	a.lo = uint64(len(s)) + 1
	b.lo = a.lo
	i := 0
	for ; len(s) >= 16; s = s[16:] {
		m0 := binary.LittleEndian.Uint64(s)
		m1 := binary.LittleEndian.Uint64(s[8:])
		k := &k.nh[i%len(k.nh)]
		a = a.addProduct(m0+k[0], m1+k[1])
		b = b.addProduct(m0+k[2], m1+k[3])
		i++
	}
	if len(s) > 0 {
		m0, m1 := lastWords(s)
		k := &k.nh[i%len(k.nh)]
		a = a.addProduct(m0+k[0], m1+k[1])
		b = b.addProduct(m0+k[2], m1+k[3])
	}
	return a, b
}

// lastWords returns the 1 to 15 bytes of s as two numbers, by overlapping loads.
func lastWords(s []byte) (m0, m1 uint64) {
	switch n := len(s); {
	case n > 8:
		return binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[n-8:]) >> (8 * (16 - n) & 63)
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(s)) | uint64(binary.LittleEndian.Uint32(s[n-4:]))<<(8*(n-4)&63), 0
	default: // first, middle and last byte, which may coincide
		return uint64(s[0]) | uint64(s[n/2])<<(8*(n/2)&63) | uint64(s[n-1])<<(8*(n-1)&63), 0
	}
}

// addItem adds an item with the hashes a and b.
func (h *Hasher) addItem(k *positionKeys, a, b sum128) {
	h.a = h.a.addProduct(a.lo, k.aLo.lo).addProduct(a.hi, k.aHi.lo)
	h.a.hi += a.lo*k.aLo.hi + a.hi*k.aHi.hi
	h.b = h.b.addProduct(b.lo, k.bLo.lo).addProduct(b.hi, k.bHi.lo)
	h.b.hi += b.lo*k.bLo.hi + b.hi*k.bHi.hi
}

// addProduct returns s + x*y.
func (s sum128) addProduct(x, y uint64) sum128 {
	hi, lo := bits.Mul64(x, y)
	lo, carry := bits.Add64(s.lo, lo, 0)
	hi, _ = bits.Add64(s.hi, hi, carry)
	return sum128{hi, lo}
}

// mix is a bijection in which every input bit changes about half of the output bits: a finalizer by
// Pelle Evensen ("moremur", 2019).
func mix(x uint64) uint64 {
	x ^= x >> 27
	x *= 0x3c79ac492ba7b653
	x ^= x >> 33
	x *= 0x1c69b3f74ac4ae35
	return x ^ x>>27
}
