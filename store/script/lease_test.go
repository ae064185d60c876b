package script

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// fixedOrder returns an order with fixed keys.
func fixedOrder() (o nonceOrder) {
	_ = binary.Read(rand.NewChaCha8([32]byte{39}), binary.LittleEndian, &o)
	return o
}

// A nonceOrder contains each nonce once.
func TestNonceOrderIsAPermutation(t *testing.T) {
	for _, o := range []nonceOrder{fixedOrder(), newNonceOrder()} {
		seen := make([]bool, nonces/2)
		for n := range uint64(nonces / 2) {
			at := o.nth(n)
			if at >= nonces/2 || seen[at] {
				t.Fatalf("%x: the nonce %d occurs twice, or is out of range", o, at)
			}
			seen[at] = true
		}
		if o.nth(5) != o.nth(5+nonces/2) {
			t.Error("the order does not begin again after the last nonce")
		}
	}
}

// A client that knows a thousand leases of a process cannot predict other leases better than by
// chance, neither from the differences of its leases nor from the preceding leases.
func TestLeasesAreUnpredictable(t *testing.T) {
	const own, guesses, every = 1000, 384, 16
	o := fixedOrder()
	var mine []uint64
	others := map[uint64]bool{}
	for n := range uint64(own * every) {
		if nonce := o.nth(n); n%every == 0 {
			mine = append(mine, nonce)
		} else if n > (own-2)*every { // 30 leases that are still held
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
	// The differences of consecutive nonces are as evenly distributed as those of random numbers.
	steps := map[uint64]int{}
	for n := range uint64(nonces / 2) {
		steps[(o.nth(n+1)-o.nth(n))%(nonces/2)]++
	}
	for step, times := range steps {
		if times > 14 { // with random numbers usually one difference in this range
			t.Errorf("the difference %d occurs %d times", step, times)
		}
	}
}

// A lease of another counter is taken for one of a counter's with a probability of 1/256, as
// docs/store.md states.
func TestForeignLeasesAreRarelyAccepted(t *testing.T) {
	const n = 256 * 1000
	accepted := 0
	for i := range n {
		if IsLease(fmt.Sprint("this ", i), NewLease(fmt.Sprint("other ", i), uint64(i%2))) {
			accepted++
		}
	}
	if most := n / 256 * 12 / 10; accepted > most {
		t.Errorf("%d of %d leases of other counters are accepted, want %d at most", accepted, n, most)
	}
	for i := range 1000 {
		if name := fmt.Sprint("this ", i); !IsLease(name, NewLease(name, uint64(i%2))) {
			t.Errorf("a lease of %q is not accepted", name)
		}
	}
}
