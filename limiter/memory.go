package limiter

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// mapFrom is the least memory that is mapped beside Go's heap, two huge pages.
const mapFrom = 4 << 20

// newSizeClass returns an empty size class of so many blocks, whose counters have so many
// cells. Its memory is zeroed, without pointers, and where the system has huge
// pages made of these, so that a counter costs no miss of the address cache.
func newSizeClass(size int, blocks int64) *sizeClass {
	s := &sizeClass{size: size, roomy: 3, locks: new([stripes]sync.Mutex)}
	slots := blocks * ways
	total := slots * int64(slotBytes(size))
	region := mapMemory(total)
	if region != nil {
		s.mapped = total
		runtime.AddCleanup(s, unmapMemory, region)
	} else {
		region = aligned(total)
	}
	p := unsafe.Pointer(unsafe.SliceData(region))
	s.blocks = unsafe.Slice((*block)(p), blocks)
	if size > 0 {
		// They are larger, so a size class has to be filled further before a pair of blocks
		// overflows. From 5 on pairs fill as evenly as if the emptier were always taken
		// (up to seven tenths; with 3 one in 19,000 counters has no room by then), and
		// a third to a half fewer are in their second block, which takes a second search.
		s.roomy = 5
		p = unsafe.Add(p, blocks*blockBytes)
		s.notes = unsafe.Slice((*note)(p), slots)
		p = unsafe.Add(p, slots*noteBytes)
		s.cells = unsafe.Slice((*atomic.Uint64)(p), slots*int64(size))
	}
	return s
}

// bytes returns the memory of the size class.
func (s *sizeClass) bytes() int64 {
	return int64(len(s.blocks)) * ways * int64(slotBytes(s.size))
}

// aligned returns memory of Go's heap that begins on a block's border.
func aligned(n int64) []byte {
	words := make([]uint64, (n+blockBytes)/8) // of words, so that it is aligned to these
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % blockBytes
	return b[skip:][:n]
}
