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
	// MaxBytes keeps a block's number below 2^32, and lets an int count bytes, which
	// 32-bit systems have fewer of.
	MaxBytes int64 = min(256<<30, math.MaxInt)
)

const (
	// mapFrom is the least memory that is mapped beside Go's heap.
	mapFrom = 1 << 20
	// returnStep is how many blocks at a time are given back to the system: what they
	// take is whole pages of memory, at least 64 KiB.
	returnStep = 512
	// hugeStep is how many blocks at a time may become huge pages: each array of a size
	// class then has at least one.
	hugeStep = hugePage / blockBytes
	hugePage = 2 << 20
)

// newSizeClass returns an empty size class whose counters have so many cells, with
// start blocks, a power of two from 2 on, and room for most. Memory without pointers is
// reserved for all of them. The system gives it, zeroed, as it is used. A system that has
// no room for as many gets a size class that grows less.
func newSizeClass(size int, start, most uint64) *sizeClass {
	s := &sizeClass{size: size, minBlocks: start, minFree: 3, locks: new([stripes]sync.Mutex)}
	s.shift = uint8(bits.TrailingZeros64(start)) //nolint:gosec // at most 64
	s.layout.Store(start)
	each := uint64(s.blockSize()) //nolint:gosec // positive
	for s.memory = mapMemory(most * each); s.memory == nil && most > start && most*each >= mapFrom; s.memory = mapMemory(most * each) {
		most = max(most/2, start)
	}
	region := s.memory
	if region != nil {
		runtime.AddCleanup(s, unmapMemory, region)
	} else {
		region = aligned(most * each)
	}
	p := unsafe.Pointer(unsafe.SliceData(region))
	s.blocks = unsafe.Slice((*block)(p), most)
	if size > 0 {
		// They are larger, so a size class has to be filled further before a pair of blocks
		// overflows. From 5 on pairs fill as evenly as if the emptier were always taken
		// (up to seven tenths; with 3 one in 19,000 counters has no room by then), and
		// a third to a half fewer are in their second block, which takes a second search.
		s.minFree = 5
		p = unsafe.Add(p, most*blockBytes)
		s.notes = unsafe.Slice((*note)(p), most*ways)
		p = unsafe.Add(p, most*ways*noteBytes)
		s.cells = unsafe.Slice((*atomic.Uint64)(p), most*ways*s.stride())
	}
	if s.memory != nil && start >= hugeStep { // a small part of a table that is larger by far
		s.forEachArray(0, start&^(hugeStep-1), adviseHuge)
	}
	return s
}

// adviseFilled asks for huge pages in place of those that have been filled when the class has
// so many blocks, so that a counter costs no miss of the address cache. Before they are
// filled a huge page would be memory that no counter has.
func (s *sizeClass) adviseFilled(count uint64) {
	if s.memory != nil && count%hugeStep == 0 {
		s.forEachArray(count-hugeStep, count, adviseHuge)
	}
}

// returnMemory gives memory back to the system when the class has so many blocks left.
// Whoever still reads it finds zeros.
func (s *sizeClass) returnMemory(count uint64) {
	if s.memory != nil && count%returnStep == 0 {
		s.forEachArray(count, min(count+returnStep, uint64(len(s.blocks))), discardMemory)
	}
}

// forEachArray calls f for the memory of blocks and of what is beside them.
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

// aligned returns memory of Go's heap that begins on a block's border.
func aligned(n uint64) []byte {
	words := make([]uint64, (n+blockBytes)/8) // of words, so that it is aligned to these
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % blockBytes
	return b[skip:][:n]
}
