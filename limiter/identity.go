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
// different inputs, however their bytes would join. A Hasher is a value: copying
// it keeps a prefix. It allocates nothing.
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

func (h *Hasher) round() {
	h.v0 += h.v1
	h.v1 = bits.RotateLeft64(h.v1, 13) ^ h.v0
	h.v0 = bits.RotateLeft64(h.v0, 32)
	h.v2 += h.v3
	h.v3 = bits.RotateLeft64(h.v3, 16) ^ h.v2
	h.v0 += h.v3
	h.v3 = bits.RotateLeft64(h.v3, 21) ^ h.v0
	h.v2 += h.v1
	h.v1 = bits.RotateLeft64(h.v1, 17) ^ h.v2
	h.v2 = bits.RotateLeft64(h.v2, 32)
}

// Word adds one number.
func (h *Hasher) Word(w uint64) {
	h.v3 ^= w
	h.round()
	h.v0 ^= w
	h.words++
}

// Bytes adds one string of bytes, its length first.
func (h *Hasher) Bytes(b []byte) {
	h.Word(uint64(len(b)))
	h.tail(b)
}

// Pair adds two strings of bytes, their lengths first.
func (h *Hasher) Pair(a, b []byte) {
	h.Word(uint64(len(a))<<32 | uint64(len(b)))
	h.tail(a)
	h.tail(b)
}

// tail adds b, whose length has been added before, padded to whole words.
func (h *Hasher) tail(b []byte) {
	for len(b) >= 8 {
		h.Word(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	if len(b) == 0 {
		return
	}
	var w uint64
	for i, c := range b {
		w |= uint64(c) << (8 * i)
	}
	h.Word(w)
}

// Sum returns the ID of what was added so far.
func (h Hasher) Sum() ID {
	h.Word(h.words)
	h.v2 ^= 0xee
	for range 3 {
		h.round()
	}
	hi := h.v0 ^ h.v1 ^ h.v2 ^ h.v3
	h.v1 ^= 0xdd
	for range 3 {
		h.round()
	}
	return ID{Hi: hi, Lo: h.v0 ^ h.v1 ^ h.v2 ^ h.v3}
}
