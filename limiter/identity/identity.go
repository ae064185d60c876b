// Package identity hashes what tells counters apart to 128 bits, with a secret key.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// ID identifies a counter: 128 bits of a keyed hash. With a secret key strangers
// who choose the hashed values cannot choose collisions; see [Hasher].
type ID struct{ Hi, Lo uint64 }

// KeyBytes is the length of a [Key].
const KeyBytes = 16

// Key is the secret that IDs are hashed with.
type Key [KeyBytes]byte

// NewKey returns a random key.
func NewKey() Key {
	var k Key
	_, _ = rand.Read(k[:]) // never fails: crypto/rand ends the process instead
	return k
}

// Hasher hashes a list of items, numbers and strings of bytes, to an [ID]. Each has
// its place in the list: [Hasher.Word] and [Hasher.Bytes] put one at the next
// place, [Hasher.WordAt] and [Hasher.BytesAt] at any, in any order. Lists that
// differ in which places are taken, or in the kind, length or contents of an item,
// are different inputs, however their bytes would join. A place takes one item;
// nothing checks that. A Hasher is a value: copying it keeps what was put so far,
// so that what many lists have in common is hashed once. It allocates nothing.
//
// The hash is a universal one (Carter and Wegman, "Universal classes of hash
// functions", 1979), computed twice with independent secrets: once for Hi, once for
// Lo. Two lists that are chosen without knowledge of an ID have the same Hi, the
// same tag of 60 bits or the same place in a table with no more than 2^-60
// beside the probability of chance, and so have Lo, independently. For each item:
//
//   - A string goes through NH (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC:
//     fast and secure message authentication", 1999): its 64-bit words m, padded with
//     zeros, and secrets k make the sum of (m0+k0)(m1+k1) and the length, modulo 2^128.
//     Two strings have the same with a probability of at most 2^-63.
//   - Both halves of that are multiplied by secrets of 128 bits, of their own for
//     each place, and everything is added up modulo 2^128. The high half of that is
//     strongly universal: for two lists it is a pair of independent uniform numbers
//     (multilinear hashing; Lemire and Kaser, "Strongly universal string hashing is
//     fast", 2014).
//   - A fixed bijection mixes it. That changes no bound; it makes what is structured
//     in many sums look like noise in the bits that choose a slot.
//
// Strings of over 256 bytes are cut into pieces of 256, whose sums are the
// coefficients of a polynomial modulo 2^61-1 at a secret point: there the 2^-60 is
// 2^-59 times the pieces.
//
// A client sees of IDs at most whether two of its values share a counter, which
// they do not, and in a table full of live counters which of them were evicted.
// Enough of the latter may tell which values meet in a block, so that these can
// evict each other sooner than at random. They can do so anyway by a flood.
type Hasher struct {
	keys *hashKeys
	// a and b are the sums for Hi and Lo.
	a, b sum128
	next int
}

// sum128 is a number modulo 2^128.
type sum128 struct{ hi, lo uint64 }

const (
	precomputed = 64 // of which the secrets are at hand
	nhBytes     = 256
)

// hashKeys are the secrets, all made from one key.
type hashKeys struct {
	key Key
	// nh has two secrets for a and two for b, for each two words of a string.
	nh        [nhBytes / 16][4]uint64
	positions [precomputed]positionKeys
	// point is where polynomials are evaluated, for a and b.
	point [2]uint64
}

// positionKeys are what the low and high half of an item are multiplied with.
type positionKeys struct{ aLo, aHi, bLo, bHi sum128 }

// Labels of the secrets, so that none is used twice.
const (
	labelCommon   = "sluice common 01"
	labelPosition = "sluice place 001"
)

// Hasher returns a hasher that has seen nothing yet. It takes some ten microseconds
// and allocates 4 KiB; copies of it do neither.
func (k Key) Hasher() Hasher {
	keys := &hashKeys{key: k}
	var words [4]uint64
	for i := range keys.nh {
		keys.nh[i] = k.derive(labelCommon, i, 0)
	}
	for place := range keys.positions {
		keys.positions[place] = k.positionKeys(place)
	}
	words = k.derive(labelCommon, len(keys.nh), 0)
	keys.point = [2]uint64{words[0] & polyPrime, words[1] & polyPrime}
	words = k.derive(labelCommon, len(keys.nh)+1, 0)
	return Hasher{keys: keys, a: sum128{words[0], words[1]}, b: sum128{words[2], words[3]}}
}

// derive returns secrets of their own for each label, number and part.
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

// positionKeys returns the secrets of a place.
func (k Key) positionKeys(place int) positionKeys {
	a, b := k.derive(labelPosition, place, 'a'), k.derive(labelPosition, place, 'b')
	return positionKeys{
		aLo: sum128{a[0], a[1]}, aHi: sum128{a[2], a[3]},
		bLo: sum128{b[0], b[1]}, bHi: sum128{b[2], b[3]},
	}
}

// AddWord puts a number at the next place.
func (h *Hasher) AddWord(w uint64) {
	h.next++
	h.AddWordAt(h.next-1, w)
}

// AddBytes puts a string of bytes at the next place.
func (h *Hasher) AddBytes(b []byte) {
	h.next++
	h.AddBytesAt(h.next-1, b)
}

// AddWordAt puts a number at a place.
func (h *Hasher) AddWordAt(place int, w uint64) {
	if uint(place) < precomputed {
		h.addItem(&h.keys.positions[place], sum128{1, w}, sum128{1, w})
		return
	}
	k := h.keys.key.positionKeys(place)
	h.addItem(&k, sum128{1, w}, sum128{1, w})
}

// AddBytesAt puts a string of bytes at a place. From place 64 on that takes half a
// microsecond.
func (h *Hasher) AddBytesAt(place int, s []byte) {
	var a, b sum128
	if len(s) <= nhBytes {
		a, b = h.keys.hash(s)
	} else {
		a, b = h.keys.hashLong(s)
	}
	if uint(place) < precomputed {
		h.addItem(&h.keys.positions[place], a, b)
		return
	}
	k := h.keys.key.positionKeys(place)
	h.addItem(&k, a, b)
}

// Sum returns the ID of what was put so far. More may be put afterwards.
func (h *Hasher) Sum() ID { return ID{Hi: mix(h.a.hi), Lo: mix(h.b.hi)} }

// hash is NH of up to nhBytes, plus the length and one.
func (k *hashKeys) hash(s []byte) (a, b sum128) {
	a.lo = uint64(len(s)) + 1
	b.lo = a.lo
	i := 0
	for ; len(s) >= 16; s = s[16:] {
		m0, m1, k := binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:]), &k.nh[i%len(k.nh)]
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

// lastWords returns the 1 to 15 bytes of s as two numbers, by loads that overlap.
func lastWords(s []byte) (m0, m1 uint64) {
	switch n := len(s); {
	case n > 8:
		return binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[n-8:]) >> (8 * (16 - n) & 63)
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(s)) | uint64(binary.LittleEndian.Uint32(s[n-4:]))<<(8*(n-4)&63), 0
	default: // first, middle and last, which may be the same
		return uint64(s[0]) | uint64(s[n/2])<<(8*(n/2)&63) | uint64(s[n-1])<<(8*(n-1)&63), 0
	}
}

// addItem adds an item, which is a for a and b for b.
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

// mix is a bijection in which every bit of x changes about half of the result's: a
// finalizer by Pelle Evensen ("moremur", 2019).
func mix(x uint64) uint64 {
	x ^= x >> 27
	x *= 0x3c79ac492ba7b653
	x ^= x >> 33
	x *= 0x1c69b3f74ac4ae35
	return x ^ x>>27
}
