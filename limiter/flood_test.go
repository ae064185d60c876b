package limiter

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// floods are sets of strings with the same hash under well-known unkeyed functions.
var floods = map[string]struct {
	text func(i int) []byte
	hash func([]byte) uint64
}{
	"xxHash64":           {xxHashFlood, xxhash.Sum64},
	"low half of FNV-1a": {fnvFlood(), fnvLow},
}

// xxHashFlood returns strings of 16 bytes: the second half cancels the effect of the first half, i.
func xxHashFlood(i int) []byte {
	const (
		p1 = 0x9E3779B185EBCA87
		p2 = 0xC2B2AE3D27D4EB4F
		p4 = 0x85EBCA77C2B2AE63
		p5 = 0x27D4EB2F165667C5
	)
	round := func(lane uint64) uint64 { return bits.RotateLeft64(lane*p2, 31) * p1 }
	invert := func(odd uint64) uint64 { // modulo 2^64, by Newton's method
		x := odd
		for range 6 {
			x *= 2 - odd*x
		}
		return x
	}
	state := uint64(p5) + 16
	state ^= round(uint64(i))
	state = bits.RotateLeft64(state, 27)*p1 + p4
	const want = 0x0123456789abcdef // state ^ round(second) for all
	second := bits.RotateLeft64((state^want)*invert(p1), -31) * invert(p2)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(i)), second)
}

func fnvLow(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b) // never fails
	return h.Sum64() & (1<<32 - 1)
}

// fnvFlood returns 2^15 strings: each bit of i chooses between two pieces that lead from one
// state to the next (Joux, "Multicollisions in iterated hash functions", 2004). The low half of the
// product depends only on low halves.
func fnvFlood() func(i int) []byte {
	const choices, prime = 15, 0x100000001b3
	var pieces [choices][2][8]byte
	state := uint32(0x84222325) // of the offset basis
	for stage := range pieces {
		seen := map[uint32][8]byte{}
		for n := uint64(1); ; n++ {
			piece := [8]byte(binary.LittleEndian.AppendUint64(nil, n*0x9E3779B97F4A7C15))
			next := state
			for _, b := range piece {
				next = (next ^ uint32(b)) * (prime & (1<<32 - 1))
			}
			if other, ok := seen[next]; ok {
				pieces[stage] = [2][8]byte{other, piece}
				state = next
				break
			}
			seen[next] = piece
		}
	}
	return func(i int) (text []byte) {
		for stage := range pieces {
			text = append(text, pieces[stage][i>>stage&1][:]...)
		}
		return text
	}
}

// TestFloodsSpread fills half a table with each flood: the counters are distributed like random
// strings.
func TestFloodsSpread(t *testing.T) {
	t.Parallel()
	for name, flood := range floods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := flood.hash(flood.text(0))
			for i := range spreadBlocks * ways / 2 {
				if got := flood.hash(flood.text(i)); got != want {
					t.Fatalf("string %d has the hash %#x, want %#x like the others: the strings are not a flood", i, got, want)
				}
			}
			checkSpread(t, flood.text)
		})
	}
}

// TestFloodsEvictLikeRandomValues inserts as many live counters as a table has slots: a flood
// evicts about as many as random values do, and none while the table is half full.
func TestFloodsEvictLikeRandomValues(t *testing.T) {
	t.Parallel()
	day := &Policy{Algorithm: FixedWindow, Limit: 5, Window: 24 * time.Hour}
	// evicted returns the number of evictions when the table is half full, and at the end.
	evicted := func(text func(i int) []byte) (half, all uint64) {
		tab := newTable(t, 256<<10)
		capacity := int(tab.Stats().Bytes) / 16
		empty := identity.NewKey().Hasher()
		b := &Batch{}
		for i := range capacity {
			if i == capacity/2 {
				half = tab.Stats().Evicted
			}
			h := empty
			h.AddBytes(text(i))
			b.Reset()
			b.Charges = append(b.Charges, oneHit(h.Sum(), day))
			tab.Decide(benchNow, b)
		}
		return half, tab.Stats().Evicted
	}
	// The number varies between keys with a standard deviation of 6 %. A successful flood evicts
	// thousands, so a bound of 1.5 times distinguishes it from chance.
	const tables = 10
	random := uint64(0)
	for range tables {
		half, all := evicted(func(i int) []byte { return fmt.Append(nil, i) })
		if random += all; half > 0 || all == 0 {
			t.Fatalf("random values evicted %d at half and %d at full capacity, want none and some", half, all)
		}
	}
	random /= tables
	for name, flood := range floods {
		half, all := evicted(flood.text)
		t.Logf("%s: %d evictions, %d with random values", name, all, random)
		if half > 0 || all > random*3/2 {
			t.Errorf("%s: evicted %d at half and %d at full capacity, want 0 and about %d", name, half, all, random)
		}
	}
}
