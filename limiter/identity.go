package limiter

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// ID identifies a counter: 128 bits of a keyed hash. With a secret key strangers
// who choose the hashed values cannot choose collisions.
type ID struct{ Hi, Lo uint64 }

// HashKey is the secret that IDs are hashed with.
type HashKey [16]byte

// NewHashKey returns a random key.
func NewHashKey() HashKey {
	var k HashKey
	_, _ = rand.Read(k[:]) // never fails: crypto/rand ends the process instead
	return k
}

// Hasher hashes a sequence of words and strings to an [ID]. It is SipHash-1-3
// with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input
// PRF", 2012), fed with self-delimiting items: two different sequences are
// different inputs, however their bytes would join, provided that what has been
// added says of which kind (word, bytes or pair) the next item is. A Hasher is a
// value: copying it keeps a prefix. It allocates nothing.
type Hasher struct {
	v0, v1, v2, v3 uint64
	words          uint64
}

// Hasher returns a hasher that has seen nothing yet.
func (k HashKey) Hasher() Hasher {
	k0, k1 := binary.LittleEndian.Uint64(k[:8]), binary.LittleEndian.Uint64(k[8:])
	return Hasher{
		v0: k0 ^ 0x736f6d6570736575,
		v1: k1 ^ 0x646f72616e646f6d ^ 0xee,
		v2: k0 ^ 0x6c7967656e657261,
		v3: k1 ^ 0x7465646279746573,
	}
}

// round is SipHash's. It takes and returns values, so that it is inlined and the
// state stays in registers across the words of a string.
func round(v0, v1, v2, v3 uint64) (_, _, _, _ uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}

// Word adds one number.
func (h *Hasher) Word(w uint64) {
	h.v3 ^= w
	h.v0, h.v1, h.v2, h.v3 = round(h.v0, h.v1, h.v2, h.v3)
	h.v0 ^= w
	h.words++
}

// Bytes adds one string of bytes, its length first.
func (h *Hasher) Bytes(b []byte) {
	h.Word(uint64(len(b)))
	h.add(b)
}

// Pair adds two strings of bytes, each below 4 GiB, their lengths first.
func (h *Hasher) Pair(a, b []byte) {
	h.Word(uint64(len(a))<<32 | uint64(len(b)))
	h.add(a)
	h.add(b)
}

// add adds b, whose length has been added before, padded to whole words.
func (h *Hasher) add(b []byte) {
	v0, v1, v2, v3 := h.v0, h.v1, h.v2, h.v3
	h.words += uint64(len(b)+7) / 8
	rest := partialWord(b)
	for ; len(b) >= 8; b = b[8:] {
		w := binary.LittleEndian.Uint64(b)
		v3 ^= w
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0 ^= w
	}
	if len(b) > 0 {
		v3 ^= rest
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0 ^= rest
	}
	h.v0, h.v1, h.v2, h.v3 = v0, v1, v2, v3
}

// partialWord returns the last len(b)%8 bytes of b as a number.
func partialWord(b []byte) uint64 {
	n := len(b)
	switch rest := n % 8; {
	case rest == 0:
		return 0
	case n > 8: // one load that overlaps the whole words
		return binary.LittleEndian.Uint64(b[n-8:]) >> (64 - 8*rest)
	case n >= 4: // two that overlap each other
		return uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[n-4:]))<<(8*(n-4))
	default: // first, middle and last, which may be the same
		return uint64(b[0]) | uint64(b[n/2])<<(8*(n/2)) | uint64(b[n-1])<<(8*(n-1))
	}
}

// Sum returns the ID of what was added so far. More may be added afterwards.
func (h *Hasher) Sum() ID {
	v0, v1, v2, v3 := round(h.v0, h.v1, h.v2, h.v3^h.words)
	v0 ^= h.words
	v2 ^= 0xee
	for range 3 {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	hi := v0 ^ v1 ^ v2 ^ v3
	v1 ^= 0xdd
	for range 3 {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	return ID{Hi: hi, Lo: v0 ^ v1 ^ v2 ^ v3}
}
