package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// An item is an item of a list: a string, or a number if isWord.
type item struct {
	position int
	isWord   bool
	word     uint64
	text     []byte
}

// slowID computes the ID as documented at Hasher, with big integers.
func slowID(key Key, items []item) ID {
	two64, two128 := new(big.Int).Lsh(big.NewInt(1), 64), new(big.Int).Lsh(big.NewInt(1), 128)
	number := func(hi, lo uint64) *big.Int {
		n := new(big.Int).SetUint64(hi)
		return n.Or(n.Lsh(n, 64), new(big.Int).SetUint64(lo))
	}
	secrets := func(label string, i int, part byte) (w [4]uint64) {
		input := bytes.Join([][]byte{key[:], []byte(label), binary.LittleEndian.AppendUint64(nil, uint64(i)), {part}}, nil)
		sum := sha256.Sum256(input)
		for j := range w {
			w[j] = binary.LittleEndian.Uint64(sum[8*j:])
		}
		return w
	}
	nh := func(b []byte, lane int) *big.Int {
		sum := big.NewInt(int64(len(b)) + 1)
		b = append(bytes.Clone(b), make([]byte, (16-len(b)%16)%16)...)
		for i := 0; i < len(b); i += 16 {
			k := secrets("sluice common 01", i/16, 0)
			x := binary.LittleEndian.Uint64(b[i:]) + k[2*lane]
			y := binary.LittleEndian.Uint64(b[i+8:]) + k[2*lane+1]
			sum.Add(sum, new(big.Int).Mul(number(0, x), number(0, y)))
		}
		return sum.Mod(sum, two128)
	}
	points, starts := secrets("sluice common 01", 16, 0), secrets("sluice common 01", 17, 0)
	prime := big.NewInt(1<<61 - 1)
	poly := func(b []byte, lane int) *big.Int {
		point := new(big.Int).Mod(number(0, points[lane]&(1<<61-1)), prime)
		sum, cut := new(big.Int), big.NewInt(1<<60-1)
		for size := len(b); len(b) > 0; b = b[min(len(b), 256):] {
			n := nh(b[:min(len(b), 256)], lane)
			for _, x := range []*big.Int{
				new(big.Int).And(n, cut),
				new(big.Int).And(new(big.Int).Rsh(n, 60), cut),
				new(big.Int).Rsh(n, 120),
			} {
				sum.Mod(sum.Add(sum.Mul(sum, point), x), prime)
			}
			if len(b) <= 256 {
				sum.Add(sum, number(uint64(size), 0))
				break
			}
		}
		return sum
	}
	var out [2]uint64
	for lane := range out {
		sum := number(starts[2*lane], starts[2*lane+1])
		for _, it := range items {
			n := number(1, it.word)
			switch {
			case it.isWord:
			case len(it.text) > 256:
				n = poly(it.text, lane)
			default:
				n = nh(it.text, lane)
			}
			k := secrets("sluice place 001", it.position, "ab"[lane])
			lo, hi := new(big.Int).Mod(n, two64), new(big.Int).Rsh(n, 64)
			sum.Add(sum, lo.Mul(lo, number(k[0], k[1])))
			sum.Add(sum, hi.Mul(hi, number(k[2], k[3])))
		}
		x := sum.Rsh(sum.Mod(sum, two128), 64).Uint64()
		x ^= x >> 27
		x *= 0x3c79ac492ba7b653
		x ^= x >> 33
		x *= 0x1c69b3f74ac4ae35
		out[lane] = x ^ x>>27
	}
	return ID{out[0], out[1]}
}

func (h *Hasher) putItem(it item) {
	if it.isWord {
		h.AddWordAt(it.position, it.word)
	} else {
		h.AddBytesAt(it.position, it.text)
	}
}

func testKey() Key {
	var k Key
	for i := range k {
		k[i] = byte(i)
	}
	return k
}

func TestHasherEqualsDefinition(t *testing.T) {
	key := testKey()
	empty := key.Hasher()
	data := make([]byte, 1100)
	for i := range data {
		data[i] = byte(i*37 + i>>3 + 1)
	}
	lengths := []int{255, 256, 257, 258, 272, 511, 512, 513, 1023, 1100}
	for n := range 70 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		for _, position := range []int{0, 1, precomputed - 1, precomputed, 3*precomputed + 5} {
			items := []item{{position: 2, isWord: true, word: 1<<63 + uint64(n)}, {position: position, text: data[:n:n]}}
			h := empty
			for _, it := range items {
				h.putItem(it)
			}
			if got, want := h.Sum(), slowID(key, items); got != want {
				t.Fatalf("%d bytes at position %d: ID %x, want %x", n, position, got, want)
			}
		}
	}
}

func FuzzHasher(f *testing.F) {
	f.Add([]byte("a"), []byte(""), uint64(3), uint16(1))
	f.Add(bytes.Repeat([]byte{0xff}, 300), bytes.Repeat([]byte{0xff}, 256), uint64(math.MaxUint64), uint16(100))
	key := testKey()
	empty := key.Hasher()
	f.Fuzz(func(t *testing.T, a, b []byte, w uint64, position uint16) {
		items := []item{{position: 0, text: a}, {position: 1, text: b}, {position: 2 + int(position), isWord: true, word: w}}
		h := empty
		h.AddBytes(a)
		h.AddBytes(b)
		h.AddWordAt(2+int(position), w)
		want := slowID(key, items)
		if got := h.Sum(); got != want {
			t.Errorf("in order: ID %x, want %x", got, want)
		}
		// The order of positions and copies of the hasher have no effect.
		h = empty
		h.putItem(items[2])
		other := h
		other.putItem(items[1])
		other.putItem(items[0])
		if got := other.Sum(); got != want {
			t.Errorf("in another order: ID %x, want %x", got, want)
		}
		// The boundary between two strings has an effect.
		if len(a) > 0 {
			h.AddBytesAt(0, a[:len(a)-1])
			h.AddBytesAt(1, append(a[len(a)-1:len(a):len(a)], b...))
			if h.Sum() == want {
				t.Errorf("%q, %q: the boundary does not change the ID", a, b)
			}
		}
	})
}

// TestHasherIsStable checks that IDs are the same in every process and version with the same key.
func TestHasherIsStable(t *testing.T) {
	h := testKey().Hasher()
	golden := func(name string, want ID) {
		t.Helper()
		if got := h.Sum(); got != want {
			t.Errorf("%s: ID{%#x, %#x}, want ID{%#x, %#x}", name, got.Hi, got.Lo, want.Hi, want.Lo)
		}
	}
	golden("nothing", ID{0x55462701c039a05a, 0xf1f12937d0f2ee67})
	h.AddWord(1)
	golden("word", ID{0x23e4d7241a822dbd, 0xc98e69542440f145})
	h.AddBytes([]byte("domain"))
	golden("bytes", ID{0x95ae8ad5f512775, 0x969fffa944f3792f})
	h.AddBytes(bytes.Repeat([]byte("0123456789"), 100))
	golden("long", ID{0xa89f6e389460cc7d, 0xf8272d1d78615cd0})
	h.AddBytesAt(1000, []byte("2001:db8::1"))
	golden("far", ID{0x549964f66edaf090, 0xe5a310ffe129b2be})
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
	empty := Key{}.Hasher()
	add("nothing", empty)
	for position := range 2 * precomputed { // an empty string and 0 differ from an absent item
		h := empty
		h.AddBytesAt(position, nil)
		add(fmt.Sprintf("empty at %d", position), h)
		for w := range uint64(300) {
			h = empty
			h.AddWordAt(position, w)
			add(fmt.Sprintf("%d at %d", w, position), h)
		}
	}
	parts := []string{"", "a", "b", "ab", "bc", "abc", "c", "\x00", "a\x00", "abcdefg", "abcdefgh", "abcdefg\x00", "abcdefghi", "0123456789abcdef"}
	for _, a := range parts {
		for _, b := range parts {
			two := empty
			two.AddBytes([]byte(a))
			two.AddBytes([]byte(b))
			add(fmt.Sprintf("%q, %q", a, b), two)
			for _, c := range parts {
				three := two
				three.AddBytes([]byte(c))
				add(fmt.Sprintf("%q, %q, %q", a, b, c), three)
			}
		}
	}
	for n := 1; n < 1000; n++ { // zeros differ by their length
		h := empty
		h.AddBytesAt(5, make([]byte, n))
		add(fmt.Sprintf("%d zeros", n), h)
	}
	for n := range 600 { // a piece at different offsets
		b := make([]byte, 600)
		b[n] = 1
		h := empty
		h.AddBytesAt(6, b)
		add(fmt.Sprintf("a 1 at %d", n), h)
	}
}

func TestHashKey(t *testing.T) {
	a, b := NewKey(), NewKey()
	if a == b {
		t.Fatal("two random keys are equal")
	}
	for i := range 8 * len(a) {
		b = a
		b[i/8] ^= 1 << (i % 8)
		x, y := a.Hasher(), b.Hasher()
		if x.Sum() == y.Sum() {
			t.Errorf("bit %d of the key does not change the ID without items", i)
		}
		x.AddWord(1)
		y.AddWord(1)
		if x, y := x.Sum(), y.Sum(); x.Hi == y.Hi || x.Lo == y.Lo {
			t.Errorf("bit %d of the key does not change both halves of an ID", i)
		}
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

func BenchmarkHasher(b *testing.B) {
	prefix := Key{1, 2, 3}.Hasher()
	prefix.AddWord(7)
	prefix.AddBytes([]byte("remote_address"))
	for _, value := range []string{"x", "10.0.0.1", "10.123.210.111", "0123456789abcdef0123456789abcdef01234567"} {
		b.Run(fmt.Sprintf("op=value/bytes=%d", len(value)), func(b *testing.B) {
			v := []byte(value)
			b.ReportAllocs()
			var sum uint64
			for b.Loop() {
				h := prefix
				h.AddBytes(v)
				sum += h.Sum().Lo
			}
			_ = sum
		})
	}
}
