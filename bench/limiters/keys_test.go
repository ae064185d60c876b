package limiters

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// keyText is the key of a counter. Its zeros are replaced by the counter's number.
const (
	keyText   = "tenant=acme,user=00000000,path=/api/v1/orders"
	keyDigits = len("tenant=acme,user=")
)

// setKey writes the number i into a copy of keyText.
func setKey(key []byte, i uint32) {
	for at := keyDigits + 7; at >= keyDigits; at-- {
		key[at] = "0123456789abcdef"[i&15]
		i >>= 4
	}
}

// falseSharingRange is the distance in bytes between data that two threads write. Closer data could
// share cache lines.
const falseSharingRange = 128

// keyWalk is the state of one thread between decisions.
type keyWalk struct {
	_   [falseSharingRange]byte
	at  int
	key [len(keyText)]byte
	_   [falseSharingRange]byte
}

func newKeyWalk(at int) *keyWalk { return &keyWalk{at: at, key: [len(keyText)]byte([]byte(keyText))} }

// next returns the key of the next number, and after the last one starts again.
func (w *keyWalk) next(numbers []uint32) []byte {
	setKey(w.key[:], numbers[w.at%len(numbers)])
	w.at++
	return w.key[:]
}

// sequenceLength is the number of draws before they repeat. It is a power of two, so that the
// modulo is cheap.
const sequenceLength = 1 << 20

// sequence draws counter numbers below n, uniformly or by Zipf's law with exponent 1.01. The result
// is the same each time.
func sequence(n int, zipf bool) []uint32 {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]uint32, sequenceLength)
	if n == 1 {
		return out
	}
	z := rand.NewZipf(rng, 1.01, 1, uint64(n-1))
	for i := range out {
		if zipf {
			out[i] = uint32(z.Uint64())
		} else {
			out[i] = rng.Uint32N(uint32(n))
		}
	}
	return out
}

func TestSequence(t *testing.T) {
	if got := slices.Max(sequence(1, true)); got != 0 {
		t.Errorf("numbers up to %d of one counter, want 0", got)
	}
	for _, zipf := range []bool{false, true} {
		numbers, first := sequence(1000, zipf), 0
		for _, n := range numbers {
			if n >= 1000 {
				t.Fatalf("zipf %v: number %d, want below 1000", zipf, n)
			}
			if n == 0 {
				first++
			}
		}
		// By Zipf's law number 0 has a share of 1/H(1000), about 0.13.
		want := map[bool]float64{false: 0.001, true: 0.136}[zipf]
		if got := float64(first) / float64(len(numbers)); math.Abs(got-want) > want/5 {
			t.Errorf("zipf %v: share of number 0 is %.4f, want about %.4f", zipf, got, want)
		}
	}
}

func TestWalk(t *testing.T) {
	w := newKeyWalk(2)
	for _, want := range []string{"000012ab", "00000003", "00000001"} {
		if got := string(w.next([]uint32{1, 2, 0x12ab, 3})); got != "tenant=acme,user="+want+",path=/api/v1/orders" {
			t.Errorf("key %q, want that of %s", got, want)
		}
	}
}
