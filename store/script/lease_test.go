package script

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// fixedOrder returns the same order in each test.
func fixedOrder() (o nonceOrder) {
	_ = binary.Read(rand.NewChaCha8([32]byte{39}), binary.LittleEndian, &o)
	return o
}

// The order has each nonce once.
func TestNonceOrderIsAPermutation(t *testing.T) {
	for _, o := range []nonceOrder{fixedOrder(), newNonceOrder()} {
		seen := make([]bool, nonces/2)
		for n := range uint64(nonces / 2) {
			at := o.nth(n)
			if at >= nonces/2 || seen[at] {
				t.Fatalf("%x: the nonce %d comes twice, or is none", o, at)
			}
			seen[at] = true
		}
		if o.nth(5) != o.nth(5+nonces/2) {
			t.Error("the order does not begin again when each nonce was given")
		}
	}
}

// Who has a thousand leases of a process foretells no more of the others than chance does: by the differences of its own, and
// by what came before each of them.
func TestLeasesAreUnpredictable(t *testing.T) {
	const own, guesses, every = 1000, 384, 16
	o := fixedOrder()
	var mine []uint64
	others := map[uint64]bool{}
	for n := range uint64(own * every) {
		if nonce := o.nth(n); n%every == 0 {
			mine = append(mine, nonce)
		} else if n > (own-2)*every { // 30 that are held
			others[nonce] = true
		}
	}
	last, before, first := mine[own-1], mine[own-2], mine[own-3]
	step := last - before
	found, tries := 0, 0
	try := func(nonce uint64) {
		if tries++; others[nonce%(nonces/2)] {
			found++
		}
	}
	for k := uint64(1); k <= guesses; k++ {
		for _, from := range []uint64{last, before} {
			try(from + k)
			try(from - k)
			try(from + k*step)
			try(from - k*step)
			try(from + k*step/every)
			try(from + k*(2*step-(before-first)))
			try(from ^ k)
			try(from ^ mine[k] ^ mine[k-1])
		}
	}
	if chance := tries * len(others) / (nonces / 2); found > 3*chance+3 {
		t.Errorf("%d of %d guesses are leases of others, want about %d", found, tries, chance)
	}
	// Steps from one to the next are as even as those of any numbers.
	steps := map[uint64]int{}
	for n := range uint64(nonces / 2) {
		steps[(o.nth(n+1)-o.nth(n))%(nonces/2)]++
	}
	for step, times := range steps {
		if times > 14 { // chance has it one time as a rule
			t.Errorf("the step %d comes %d times", step, times)
		}
	}
}
