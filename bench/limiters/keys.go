package main

import "math/rand/v2"

// keyText is what names a counter. Its zeros become the counter's number.
const (
	keyText   = "tenant=acme,user=00000000,path=/api/v1/orders"
	keyDigits = len("tenant=acme,user=")
	keyNumber = 8 // hexadecimal digits
)

// setKey writes the number i into a copy of keyText.
func setKey(key []byte, i uint32) {
	for at := keyDigits + keyNumber - 1; at >= keyDigits; at-- {
		key[at] = "0123456789abcdef"[i&15]
		i >>= 4
	}
}

func newKey(i uint32) []byte {
	key := []byte(keyText)
	setKey(key, i)
	return key
}

// apart is how many bytes lie between what two threads write, so that neither waits
// for a cache line, or for the one beside it, that the other has.
const apart = 128

// A walk is what one thread writes from decision to decision.
type walk struct {
	_   [apart]byte
	at  int
	key [len(keyText)]byte
	_   [apart]byte
}

func newWalk(at int) *walk { return &walk{at: at, key: [len(keyText)]byte([]byte(keyText))} }

// sequenceLength is how many numbers are drawn before they repeat. It is a power
// of two.
const sequenceLength = 1 << 20

// sequence draws numbers of counters below n: 0 alone, all alike, or by Zipf's law
// with the exponent 1.01. They are the same ones each time.
func sequence(n int, zipf bool) []uint32 {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same numbers each time
	out := make([]uint32, sequenceLength)
	if n == 1 {
		return out
	}
	z := rand.NewZipf(rng, 1.01, 1, uint64(n-1)) //nolint:gosec // at least 1
	for i := range out {
		if zipf {
			out[i] = uint32(z.Uint64()) //nolint:gosec // below n
		} else {
			out[i] = rng.Uint32N(uint32(n)) //nolint:gosec // below 2^28
		}
	}
	return out
}

// keyed makes decisions on the counters of the sequence, from a place of its own
// in it for each thread.
func keyed(w worker, numbers []uint32, thread int) batch {
	own := newWalk(thread * len(numbers) / 2)
	key := own.key[:]
	return func(n int) (admitted int) {
		for range n {
			setKey(key, numbers[own.at%len(numbers)])
			own.at++
			if w(key) {
				admitted++
			}
		}
		return admitted
	}
}

// fresh makes one decision on each counter from 0 on. With keep the worker may
// keep the key.
func fresh(w worker, keep bool) batch {
	key, next := []byte(keyText), uint32(0)
	return func(n int) (admitted int) {
		for range n {
			if keep {
				key = []byte(keyText)
			}
			setKey(key, next)
			next++
			if w(key) {
				admitted++
			}
		}
		return admitted
	}
}
