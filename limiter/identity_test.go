package limiter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"testing"
)

// sipHash is SipHash-c-d with 128 bits of output over whole words, the last of
// which says how long the input is, as in the paper and in its authors' code.
func sipHash(c, d int, key HashKey, words []uint64) ID {
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	v := [4]uint64{0x736f6d6570736575 ^ k0, 0x646f72616e646f6d ^ k1 ^ 0xee, 0x6c7967656e657261 ^ k0, 0x7465646279746573 ^ k1}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[2] += v[3]
			v[1] = bits.RotateLeft64(v[1], 13)
			v[3] = bits.RotateLeft64(v[3], 16)
			v[1] ^= v[0]
			v[3] ^= v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[1]
			v[0] += v[3]
			v[1] = bits.RotateLeft64(v[1], 17)
			v[3] = bits.RotateLeft64(v[3], 21)
			v[1] ^= v[2]
			v[3] ^= v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	for _, w := range words {
		v[3] ^= w
		rounds(c)
		v[0] ^= w
	}
	v[2] ^= 0xee
	rounds(d)
	hi := v[0] ^ v[1] ^ v[2] ^ v[3]
	v[1] ^= 0xdd
	rounds(d)
	return ID{hi, v[0] ^ v[1] ^ v[2] ^ v[3]}
}

func sequentialKey() HashKey {
	var k HashKey
	for i := range k {
		k[i] = byte(i)
	}
	return k
}

// The first of the authors' test vectors for SipHash-2-4 with 128 bits.
func TestSipHashReference(t *testing.T) {
	id := sipHash(2, 4, sequentialKey(), []uint64{0})
	got := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, id.Hi), id.Lo)
	want := []byte{0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93}
	if !bytes.Equal(got, want) {
		t.Errorf("sipHash(2, 4) of nothing = %x, want %x", got, want)
	}
}

// padded returns b as whole words, with zeros at its end.
func padded(b []byte) []uint64 {
	b = append(bytes.Clone(b), make([]byte, (8-len(b)%8)%8)...)
	var words []uint64
	for ; len(b) > 0; b = b[8:] {
		words = append(words, binary.LittleEndian.Uint64(b))
	}
	return words
}

func TestHasherIsSipHash(t *testing.T) {
	key := HashKey{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6}
	data := make([]byte, 64)
	for i := range data {
		data[i] = byte(i*37 + 1)
	}
	for n := range 40 {
		for m := range 18 {
			a, b := data[:n:n], data[n:n+m:n+m]
			h := key.Hasher()
			h.Word(42)
			h.Bytes(a)
			h.Pair(a, b)
			words := append([]uint64{42, uint64(n)}, padded(a)...)
			words = append(words, uint64(n)<<32|uint64(m))
			words = append(append(words, padded(a)...), padded(b)...)
			words = append(words, uint64(len(words)))
			if got, want := h.Sum(), sipHash(1, 3, key, words); got != want {
				t.Fatalf("lengths %d, %d: ID %x, want %x", n, m, got, want)
			}
		}
	}
}

// IDs are the same in every process and version with the same key.
func TestHasherIsStable(t *testing.T) {
	h := sequentialKey().Hasher()
	golden := func(name string, want ID) {
		t.Helper()
		if got := h.Sum(); got != want {
			t.Errorf("%s: ID{%#x, %#x}, want ID{%#x, %#x}", name, got.Hi, got.Lo, want.Hi, want.Lo)
		}
	}
	golden("nothing", ID{0xbea58827b2bc7ee7, 0x13030dd6adb62fd})
	h.Word(1)
	golden("word", ID{0x4be364656b0c9365, 0xb90e45004afa8bdc})
	h.Bytes([]byte("domain"))
	golden("bytes", ID{0xd46496f82083608a, 0x5356f2de8a46ede8})
	h.Pair([]byte("remote_address"), []byte("2001:db8::1"))
	golden("pair", ID{0x62f673a1104ac4d1, 0xd4ab070005862f36})
	golden("pair, again", ID{0x62f673a1104ac4d1, 0xd4ab070005862f36})
}

func TestHasherIsInjective(t *testing.T) {
	seen := map[ID]string{}
	add := func(name string, h Hasher) {
		t.Helper()
		if other, ok := seen[h.Sum()]; ok {
			t.Errorf("%s and %s have the same ID", name, other)
		}
		seen[h.Sum()] = name
	}
	parts := []string{"", "a", "b", "ab", "bc", "abc", "c", "\x00", "a\x00", "abcdefg", "abcdefgh", "abcdefg\x00", "abcdefghi", "0123456789abcdef"}
	for _, a := range parts {
		for _, b := range parts {
			pair := HashKey{}.Hasher()
			pair.Pair([]byte(a), []byte(b))
			add(fmt.Sprintf("Pair(%q, %q)", a, b), pair)
			for _, c := range parts {
				two := pair
				two.Pair([]byte(c), []byte("x"))
				add(fmt.Sprintf("Pair(%q, %q), Pair(%q, x)", a, b, c), two)
			}
		}
	}
	for n := 1; n < 40; n++ { // zeros only: the lengths tell
		h := HashKey{1}.Hasher()
		h.Bytes(make([]byte, n))
		add(fmt.Sprintf("%d zeros", n), h)
	}
}

func TestHashKey(t *testing.T) {
	a, b := NewHashKey(), NewHashKey()
	if a == b {
		t.Fatal("two random keys are equal")
	}
	for i := range a {
		b = a
		b[i] ^= 1
		if x, y := a.Hasher(), b.Hasher(); x.Sum() == y.Sum() {
			t.Errorf("byte %d of the key does not change the ID", i)
		}
	}
	h := a.Hasher()
	h.Word(1)
	prefix := h
	h.Word(2)
	prefix.Word(2)
	if h.Sum() != prefix.Sum() {
		t.Error("a copied hasher does not go on like the original")
	}
}

func BenchmarkHasher(b *testing.B) {
	prefix := HashKey{1, 2, 3}.Hasher()
	prefix.Word(7)
	key := []byte("remote_address")
	for _, value := range []string{"x", "10.0.0.1", "10.123.210.111", "0123456789abcdef0123456789abcdef01234567"} {
		b.Run(fmt.Sprintf("op=pair/bytes=%d", len(value)), func(b *testing.B) {
			v := []byte(value)
			b.ReportAllocs()
			var sum uint64
			for b.Loop() {
				h := prefix
				h.Pair(key, v)
				sum += h.Sum().Lo
			}
			_ = sum
		})
	}
}
