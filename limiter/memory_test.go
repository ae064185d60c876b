package limiter

import (
	"testing"
	"unsafe"
)

// TestBlocksAreAligned checks that blocks are aligned to cache lines, and words to 64 bits
// on 32-bit systems too.
func TestBlocksAreAligned(t *testing.T) {
	for _, size := range []int{0, 1, 3, 62, 4096} {
		for _, least := range []uint64{1, mapFrom} {
			blocks := max(2, least/(ways*uint64(slotBytes(size))))
			s := newSizeClass(size, 2, blocks)
			if at := uintptr(unsafe.Pointer(unsafe.SliceData(s.blocks))); at%blockBytes != 0 {
				t.Errorf("%d blocks of %d cells begin at %#x, not at a multiple of %d bytes", blocks, size, at, blockBytes)
			}
			if size == 0 {
				continue
			}
			if at := uintptr(unsafe.Pointer(unsafe.SliceData(s.notes))); at%8 != 0 {
				t.Errorf("notes of %d blocks of %d cells begin at %#x", blocks, size, at)
			}
			if at := uintptr(unsafe.Pointer(unsafe.SliceData(s.cells))); at%8 != 0 {
				t.Errorf("cells of %d blocks of %d cells begin at %#x", blocks, size, at)
			}
		}
	}
}
