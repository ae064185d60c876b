package limiter

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// structured contains kinds of strings that a weak hash would map to few slots: typical names and
// attacks.
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

// TestStructuredNamesSpread fills half a table with each kind: blocks fill like those of random
// IDs, and the halves of IDs are all different.
func TestStructuredNamesSpread(t *testing.T) {
	t.Parallel()
	for name, text := range structured {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkSpread(t, text)
		})
	}
}

// spreadBlocks is the number of blocks of the table in checkSpread.
const spreadBlocks = 1 << 12

// checkSpread fills half a table with strings and checks their distribution.
func checkSpread(t *testing.T, text func(i int) []byte) {
	t.Helper()
	const blocks, n = spreadBlocks, spreadBlocks * ways / 2
	sc := newSizeClass(0, blocks, blocks)
	empty := identity.NewKey().Hasher()
	hi, lo := map[uint64]bool{}, map[uint64]bool{}
	var first, second, both [blocks]int
	used := make([]int, blocks)
	lost := 0
	for i := range n {
		h := empty
		h.AddBytes(text(i))
		id := h.Sum()
		hi[id.Hi>>kindBits], lo[id.Lo] = true, true
		a, b := sc.blockPair(id)
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
		t.Errorf("%d counters found both blocks full in a half-full table, want none", lost)
	}
	// Counts follow a Poisson distribution: their variance is their mean. Over so many blocks the
	// ratio is normal with a deviation of sqrt(2/blocks).
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
