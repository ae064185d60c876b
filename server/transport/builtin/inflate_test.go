package builtin

import (
	"bytes"
	"compress/gzip"
	"errors"
	"math/rand/v2"
	"testing"
)

// TestInflate decompresses messages of many sizes and kinds, within and beyond the limit.
func TestInflate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{0, 1, 100, 4 << 10, smallMessageBytes - 1, smallMessageBytes, chunkBytes, 100_000, 1 << 20} {
		for kind, message := range map[string][]byte{"equal bytes": make([]byte, size), "random": randomBytes(r, size)} {
			small := gzipped(message)
			for _, most := range []int{size - 1, size, size + 1, 4 << 20} {
				parts := 0
				z := &inflater{afterChunk: func(held int) {
					if parts++; held > max(most+1, 0) {
						t.Errorf("%d bytes are allocated, of %d allowed", held, most)
					}
				}}
				z, err := z.inflate(small, most, chunkBytes)
				if most < size {
					if !errors.Is(err, errInflatedTooLarge) {
						t.Errorf("%d bytes %s, %d allowed: %v", size, kind, most, err)
					}
					continue
				}
				if err != nil || !bytes.Equal(z.out, message) {
					t.Fatalf("%d bytes %s: %v", size, kind, err)
				}
				if want := (size + len(small)) / chunkBytes; parts < want-want/4-1 || parts > want+1 {
					t.Errorf("%d bytes %s come in %d parts, want %d", size, kind, parts, want)
				}
				z.release()
				switch z, err = inflateSmall(small, most); {
				case errors.Is(err, errNeedsToken) && size+len(small) >= smallMessageBytes:
				case err != nil || size+len(small) >= smallMessageBytes || !bytes.Equal(z.out, message):
					t.Fatalf("%d bytes %s, freely: %v", size, kind, err)
				default:
					z.release()
				}
			}
		}
	}
}

func randomBytes(r *rand.Rand, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.IntN(256))
	}
	return b
}

// TestInflateCountsEmptyOutput decompresses input that produces no output, which takes time, too.
func TestInflateCountsEmptyOutput(t *testing.T) {
	small := bytes.Repeat(gzipped(nil), 10_000)
	if _, err := inflateSmall(small[:smallMessageBytes], 100); !errors.Is(err, errNeedsToken) {
		t.Errorf("an empty message is decompressed without a token: %v", err)
	}
	parts := 0
	z, err := inflateLarge(small, 100, func(int) { parts++ })
	if err != nil || len(z.out) != 0 || parts < len(small)/chunkBytes {
		t.Fatalf("%d bytes come in %d parts: %v", len(small), parts, err)
	}
	z.release()
}

// TestInflateErrors decompresses invalid and truncated input.
func TestInflateErrors(t *testing.T) {
	small := gzipped(make([]byte, 100_000))
	for n := range small {
		if z, err := inflateLarge(small[:n], 1<<20, func(int) {}); err == nil {
			t.Fatalf("%d of %d bytes are a message of %d", n, len(small), len(z.out))
		}
	}
	for n := range small {
		bad := bytes.Clone(small)
		bad[n] ^= 0x55
		if z, err := inflateLarge(bad, 1<<20, func(int) {}); err == nil { // most bytes of the header are ignored
			z.release()
		}
	}
}

// TestInflateSmallDoesNotAllocate verifies that decompressing an ordinary request does not
// allocate.
func TestInflateSmallDoesNotAllocate(t *testing.T) {
	small := gzipped([]byte("\x0a\x01d\x12\x08\x0a\x06\x0a\x01k\x12\x01v"))
	z := new(inflater)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := z.inflate(small, 4<<20, smallMessageBytes); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// gzipped compresses a message.
func gzipped(message []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(message) // writes to a buffer do not fail
	_ = w.Close()
	return b.Bytes()
}
