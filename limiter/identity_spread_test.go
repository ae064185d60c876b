package limiter

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"testing"
)

// structured are strings as strangers and ordinary names have them, n of each
// kind: what a weak hash would send to few slots.
var structured = map[string]func(i int) []byte{
	"decimal counter":      func(i int) []byte { return fmt.Appendf(nil, "user-%07d", i) },
	"binary counter":       func(i int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(i)) },
	"counter in high half": func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)<<20) },
	"address":              func(i int) []byte { return fmt.Appendf(nil, "10.%d.%d.%d", i>>16, i>>8&255, i&255) },
	"long prefix":          func(i int) []byte { return fmt.Appendf(nil, "%0240d", i) },
	"long suffix":          func(i int) []byte { return fmt.Appendf(nil, "%08d%0200d", i, 0) },
	"over 256 bytes":       func(i int) []byte { return fmt.Appendf(nil, "%0300d%08d%0300d", 0, i, 0) },
	"two bits of 256": func(i int) []byte {
		b := make([]byte, 32)
		x, y := i%128, 128+i/128%128
		b[x/8] = 1 << (x % 8)
		b[y/8] = 1 << (y % 8)
		return b
	},
	"multiples of 2^32": func(i int) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(i)<<32), ^uint64(i)<<32)
	},
	"swapped words": func(i int) []byte {
		b := binary.LittleEndian.AppendUint64(nil, uint64(i>>9))
		return binary.LittleEndian.AppendUint64(b, uint64(i&511)*0x0101010101010101)
	},
}

// TestStructuredNamesSpread fills half a table with each kind: blocks fill like those
// of random IDs, and halves of IDs are all different.
func TestStructuredNamesSpread(t *testing.T) {
	t.Parallel()
	for name, text := range structured {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spreads(t, text)
		})
	}
}

// spreadBlocks are those of the table that spreads fills.
const spreadBlocks = 1 << 12

// spreads fills half a table with strings and looks how they lie there.
func spreads(t *testing.T, text func(i int) []byte) {
	t.Helper()
	const blocks, n = spreadBlocks, spreadBlocks * ways / 2
	sh := &shelf{blocks: make([]block, blocks)}
	empty := NewHashKey().Hasher()
	hi, lo := map[uint64]bool{}, map[uint64]bool{}
	var first, second, both [blocks]int
	used := make([]int, blocks)
	lost := 0
	for i := range n {
		h := empty
		h.Bytes(text(i))
		id := h.Sum()
		hi[id.Hi>>kindBits], lo[id.Lo] = true, true
		a, b := sh.pair(id)
		first[a]++
		second[b]++
		both[a]++
		both[b]++
		at := a // as choose does
		if used[a] > ways-3 && used[b] < used[a] {
			at = b
		}
		if used[at] == ways {
			lost++
		}
		used[at]++
	}
	if len(hi) != n || len(lo) != n {
		t.Errorf("%d of %d tags and %d low halves differ, want all", len(hi), n, len(lo))
	}
	if lost > 0 {
		t.Errorf("%d found both blocks full in a half full table, want none", lost)
	}
	// Counts are spread as by Poisson's law: their variance is their mean. Over
	// so many blocks the ratio is normal with a deviation of sqrt(2/blocks).
	for which, counts := range map[string]*[blocks]int{"first": &first, "second": &second, "both": &both} {
		sum, squares := 0.0, 0.0
		for _, c := range counts {
			sum += float64(c)
			squares += float64(c) * float64(c)
		}
		mean := sum / blocks
		ratio := (squares/blocks - mean*mean) / mean
		if math.Abs(ratio-1) > 7*math.Sqrt(2.0/blocks) {
			t.Errorf("%s block: variance is %.3f times the mean, want about 1", which, ratio)
		}
	}
}

// TestEveryBitMatters flips each bit of strings: about half of the bits of both
// halves of the ID change, each of them in about half of the cases.
func TestEveryBitMatters(t *testing.T) {
	const tries = 200
	for _, size := range []int{1, 7, 8, 15, 16, 17, 45, 256, 300} {
		var flips [128]int
		cases := 0
		for try := range tries {
			k := HashKey{byte(try), byte(size)}
			empty := k.Hasher()
			b := make([]byte, size)
			for i := range b {
				b[i] = byte(i * try)
			}
			h := empty
			h.Bytes(b)
			was := h.Sum()
			for bit := try % 3; bit < 8*size; bit += 1 + size {
				b[bit/8] ^= 1 << (bit % 8)
				h = empty
				h.Bytes(b)
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

// TestPermutedItemsDiffer puts the same strings at each other's places.
func TestPermutedItemsDiffer(t *testing.T) {
	empty := NewHashKey().Hasher()
	seen := map[uint64]string{}
	var put func(h Hasher, left []string, order string)
	put = func(h Hasher, left []string, order string) {
		if len(left) == 0 {
			id := h.Sum()
			for _, half := range []uint64{id.Hi >> kindBits, ^(id.Lo >> kindBits)} {
				if other, ok := seen[half]; ok {
					t.Errorf("half an ID of %s and %s is the same", order, other)
				}
				seen[half] = order
			}
			return
		}
		for i := range left {
			g := h
			g.Bytes([]byte(left[i]))
			rest := append(append([]string{}, left[:i]...), left[i+1:]...)
			put(g, rest, order+" "+left[i])
		}
	}
	put(empty, []string{"a", "b", "c", "d", "e", "f", "g"}, "")
}
