package identity

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestEveryBitMatters flips each bit of strings: about half of the bits of both
// halves of the ID change, each of them in about half of the cases.
func TestEveryBitMatters(t *testing.T) {
	const tries = 200
	for _, size := range []int{1, 7, 8, 15, 16, 17, 45, 256, 300} {
		var flips [128]int
		cases := 0
		for try := range tries {
			k := Key{byte(try), byte(size)}
			empty := k.Hasher()
			b := make([]byte, size)
			for i := range b {
				b[i] = byte(i * try)
			}
			h := empty
			h.AddBytes(b)
			was := h.Sum()
			for bit := try % 3; bit < 8*size; bit += 1 + size {
				b[bit/8] ^= 1 << (bit % 8)
				h = empty
				h.AddBytes(b)
				is := h.Sum()
				b[bit/8] ^= 1 << (bit % 8)
				cases++
				for i := range 64 {
					flips[i] += int((was.Hi ^ is.Hi) >> i & 1)
					flips[64+i] += int((was.Lo ^ is.Lo) >> i & 1)
				}
				if d := bits.OnesCount64(was.Hi^is.Hi) + bits.OnesCount64(was.Lo^is.Lo); d < 24 {
					t.Errorf("%d bytes, bit %d: %d of 128 bits change", size, bit, d)
				}
			}
		}
		for i, n := range flips {
			if p := float64(n) / float64(cases); math.Abs(p-0.5) > 6*0.5/math.Sqrt(float64(cases)) {
				t.Errorf("%d bytes: bit %d of the ID changes with a probability of %.3f", size, i, p)
			}
		}
	}
}

// tagBits is the number of low bits of Hi that a tag does not contain.
const tagBits = 4

// TestPermutedItemsDiffer permutes the positions of the same strings.
func TestPermutedItemsDiffer(t *testing.T) {
	empty := NewKey().Hasher()
	seen := map[uint64]string{}
	var put func(h Hasher, left []string, order string)
	put = func(h Hasher, left []string, order string) {
		if len(left) == 0 {
			id := h.Sum()
			for _, half := range []uint64{id.Hi >> tagBits, ^(id.Lo >> tagBits)} {
				if other, ok := seen[half]; ok {
					t.Errorf("a half of the IDs of %s and %s is equal", order, other)
				}
				seen[half] = order
			}
			return
		}
		for i := range left {
			g := h
			g.AddBytes([]byte(left[i]))
			others := append(append([]string{}, left[:i]...), left[i+1:]...)
			put(g, others, order+" "+left[i])
		}
	}
	put(empty, []string{"a", "b", "c", "d", "e", "f", "g"}, "")
}

// TestProcessesHashDifferently checks that two keys map the same strings to different blocks.
func TestProcessesHashDifferently(t *testing.T) {
	a, b := NewKey().Hasher(), NewKey().Hasher()
	same := 0
	for i := range 1000 {
		x, y := a, b
		text := fmt.Append(nil, i)
		x.AddBytes(text)
		y.AddBytes(text)
		if x.Sum().Lo>>52 == y.Sum().Lo>>52 { // one of 4096 blocks
			same++
		}
	}
	if same > 10 {
		t.Errorf("%d of 1000 strings go to the same of 4096 blocks with two keys, want about none", same)
	}
}

func TestHasherAllocatesNothing(t *testing.T) {
	key, value := []byte("remote_address"), []byte("10.0.0.1")
	prefix := Key{}.Hasher()
	if n := must.AllocsPerRun(100, func() {
		h := prefix
		h.AddBytes(key)
		h.AddBytesAt(2*precomputed, value)
		h.AddWord(1)
		_ = h.Sum()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
