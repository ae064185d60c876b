package limiter

import (
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Bounds and default of [Options.Bytes].
const (
	MinBytes     = 4 << 10
	defaultBytes = 64 << 20
	// MaxBytes keeps block numbers below 2^32, and byte counts within an int on 32-bit systems.
	MaxBytes int64 = min(256<<30, math.MaxInt)
)

const (
	// mapFrom is the smallest memory that is mapped outside of Go's heap.
	mapFrom = 1 << 20
	// returnStep is the number of blocks that are returned to the system together: whole pages, at
	// least 64 KiB.
	returnStep = 512
	// hugeStep is the number of blocks that may become huge pages together, so that each array of a
	// size class has at least one.
	hugeStep = hugePage / blockBytes
	hugePage = 2 << 20
)

// newSizeClass returns an empty size class with the given number of cells per counter. It has start
// blocks, a power of two from 2, and address space for maxBlocks, or for fewer if the system has
// not enough. The system provides zeroed memory as it is used.
func newSizeClass(size int, start, maxBlocks uint64) *sizeClass {
	s := &sizeClass{size: size, minBlocks: start, minFree: 3, locks: new([stripes]sync.Mutex)}
	s.shift = uint8(bits.TrailingZeros64(start)) //nolint:gosec // at most 64
	s.layout.Store(start)
	each := uint64(s.blockSize()) //nolint:gosec // positive
	for s.memory = mapMemory(maxBlocks * each); s.memory == nil && maxBlocks > start &&
		maxBlocks*each >= mapFrom; s.memory = mapMemory(maxBlocks * each) {
		maxBlocks = max(maxBlocks/2, start)
	}
	region := s.memory
	if region != nil {
		runtime.AddCleanup(s, unmapMemory, region)
	} else {
		region = aligned(maxBlocks * each)
	}
	p := unsafe.Pointer(unsafe.SliceData(region))
	s.blocks = unsafe.Slice((*block)(p), maxBlocks)
	if size > 0 {
		// Larger counters need a higher fill before a pair of blocks overflows. From 5 on, pairs
		// fill as evenly as if the emptier block were always taken (up to a load of 0.7; with 3 one
		// in 19,000 counters then finds no slot), and a third to a half fewer counters are in their
		// second block, which takes a second search.
		s.minFree = 5
		p = unsafe.Add(p, maxBlocks*blockBytes)
		s.notes = unsafe.Slice((*note)(p), maxBlocks*ways)
		p = unsafe.Add(p, maxBlocks*ways*noteBytes)
		s.cells = unsafe.Slice((*atomic.Uint64)(p), maxBlocks*ways*s.stride())
	}
	if s.memory != nil && start >= hugeStep { // the first blocks are a small part of the table
		s.forEachArray(0, start&^(hugeStep-1), adviseHuge)
	}
	return s
}

// adviseFilled requests huge pages for the last hugeStep blocks when count is a multiple of it, to
// save TLB misses. Earlier, a huge page would use memory for blocks that are not in use.
func (s *sizeClass) adviseFilled(count uint64) {
	if s.memory != nil && count%hugeStep == 0 {
		s.forEachArray(count-hugeStep, count, adviseHuge)
	}
}

// returnMemory returns memory to the system when count blocks are left. Late readers of that memory
// find zeros.
func (s *sizeClass) returnMemory(count uint64) {
	if s.memory != nil && count%returnStep == 0 {
		s.forEachArray(count, min(count+returnStep, uint64(len(s.blocks))), discardMemory)
	}
}

// forEachArray calls f with the memory of the given blocks in each array.
func (s *sizeClass) forEachArray(from, to uint64, f func([]byte)) {
	part := func(offset, each uint64) uint64 {
		f(s.memory[offset+from*each : offset+to*each])
		return offset + uint64(len(s.blocks))*each
	}
	end := part(0, blockBytes)
	if s.size > 0 {
		end = part(end, ways*noteBytes)
		part(end, ways*8*s.stride())
	}
}

// aligned returns memory of Go's heap that is aligned to a block.
func aligned(n uint64) []byte {
	words := make([]uint64, (n+blockBytes)/8) // of words, for their alignment
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % blockBytes
	return b[skip:][:n]
}
