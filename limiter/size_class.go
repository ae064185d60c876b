package limiter

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

const (
	ways       = 8
	blockBytes = ways * 16
	lineWays   = 4 // slots per cache line
	stripes    = 256

	// generationBit, the high bit of a one-word counter, flips when its slot changes its owner.
	generationBit = 1 << 63
	// dead is the word of a slot that is changing its owner, in all size classes. A reader that
	// loads it waits for the lock of the block's stripe.
	dead = ^uint64(0)
)

// A slot stores one counter.
type slot struct {
	// tag identifies the counter and its algorithm; see tagOf. 0 means never used. It is written
	// under the lock of the block's stripe.
	tag atomic.Uint64
	// word is the state of the counter, or dead while the slot changes its owner.
	word atomic.Uint64
}

// A block is two cache lines of slots. Memory for many blocks is page-aligned, so a block never
// straddles three lines; a test checks this.
type block [ways]slot

// A note is the part of a counter with cells that changes only with its cells.
type note struct {
	// end is the [Time] at which the counter expires.
	end atomic.Int64
	// past is the sum of the cells of a sliding window; see permits for concurrency counters.
	past atomic.Uint64
}

const noteBytes = 16

// A sizeClass stores counters of one size in a set-associative array. A counter has its slot in one
// of two blocks. The array grows and shrinks by one block at a time while it is in use; see
// grow.go. It contains no pointers for the garbage collector to follow.
type sizeClass struct {
	// blocks has the maximum number of blocks. Those in use come first; see layout.
	blocks []block
	// size is the number of cells per counter. The cells of slot i start at i*size, and its note is
	// notes[i].
	size  int
	notes []note
	cells []atomic.Uint64
	// minFree is the number of free slots at which the preferred block is used. With fewer, the
	// emptier of the two blocks is used, so that blocks fill evenly.
	minFree int
	// minBlocks is the minimum number of blocks, a power of two, and shift its logarithm.
	minBlocks uint64
	shift     uint8
	// layout has the number of blocks in use in its low 32 bits. The high bits are incremented
	// whenever counters move, so that a reader that did not find a counter knows whether to search
	// again.
	layout atomic.Uint64
	// resizeMu is held while the number of blocks changes.
	resizeMu sync.Mutex
	// memory is the mapping outside of Go's heap, or nil.
	memory []byte
	// nonces belongs to the table.
	nonces *nonceKey
	// skipSearches is how many counters without a free slot skip the search for room, because a
	// recent search failed.
	skipSearches atomic.Int64
	// reclaimed and evicted count as in [Stats].
	reclaimed, evicted atomic.Uint64
	// cursor is the cursor of a running snapshot, or nil.
	cursor atomic.Pointer[snapshotCursor]
	// locks serialise the inserts of new counters, so that a counter never gets two slots. Block i
	// belongs to lock i mod stripes; two locks are acquired in ascending order. Charges on counters
	// with a slot need no lock.
	locks *[stripes]sync.Mutex
}

// Parts of a layout.
const (
	layoutMove  = 1 << 32 // added for each move
	layoutCount = layoutMove - 1
)

// inUse returns the number of blocks in use.
func (s *sizeClass) inUse() uint64 { return s.layout.Load() & layoutCount }

// blockSize returns the memory of a block with its notes and cells.
func (s *sizeClass) blockSize() int64 { return ways * int64(slotBytes(s.size)) }

// bytes returns the memory of the blocks in use.
func (s *sizeClass) bytes() int64 { return int64(s.inUse()) * s.blockSize() } //nolint:gosec // at most MaxBytes

// stride is size as a number of cells.
func (s *sizeClass) stride() uint64 { return uint64(s.size) } //nolint:gosec // not negative

func (s *sizeClass) noteAt(index uint64) *note { return &s.notes[index] }

// cell returns the nth cell of a slot.
func (s *sizeClass) cell(index, n uint64) *atomic.Uint64 { return &s.cells[index*s.stride()+n] }

// cellsOf returns the cells of a slot.
func (s *sizeClass) cellsOf(index uint64) []atomic.Uint64 {
	n := s.stride()
	return s.cells[index*n:][:n]
}

// loadCells brings the note and the first cells of a slot into the cache in parallel: each atomic
// store would otherwise wait for the memory of the one before.
func (s *sizeClass) loadCells(index uint64) {
	s.noteAt(index).end.Load()
	s.cell(index, 0).Load()
}

// prefetchSlot prefetches the note and the first cells of the preferred slot of id.
func (s *sizeClass) prefetchSlot(id identity.ID) {
	first, _ := s.blockPair(id)
	index := first*ways + way(id)
	prefetch(&s.noteAt(index).past)
	prefetch(s.cell(index, 0))
}

// slotAt returns the slot with the given number.
func (s *sizeClass) slotAt(index uint64) *slot { return &s.blocks[index/ways][index%ways] }

// The block numbers of a counter come from two hashes. Their low bits, log2(minBlocks) of them, are
// bits of ID.Lo; the others are bits of the tag. A slot therefore reveals both hashes of its
// counter: the low bits by its location and the others by its tag.

// firstHigh and secondHigh return the high bits of a counter's two hashes, given its tag or ID.Hi.
func firstHigh(tag uint64) uint64  { return tag >> kindBits }
func secondHigh(tag uint64) uint64 { return tag >> 16 }

// otherLow converts the low bits of one of a counter's hashes to those of the other. They differ,
// and so do the two blocks.
func (s *sizeClass) otherLow(low, tag uint64) uint64 {
	return (low ^ (tag>>28 | 1)) & (s.minBlocks - 1)
}

// address returns the block number of a hash by linear hashing (Litwin, "Linear hashing: a new tool
// for file and table addressing", 1980): an additional block changes only the addresses of counters
// in one other block.
func address(hash, count uint64) uint64 {
	mask := uint64(1)<<bits.Len64(count-1) - 1
	if i := hash & mask; i < count {
		return i
	}
	return hash & (mask >> 1)
}

// blockPairUnder returns the numbers of the two blocks of id under the given layout, the preferred
// one first.
func (s *sizeClass) blockPairUnder(layout uint64, id identity.ID) (first, second uint64) {
	count := layout & layoutCount
	low := id.Lo / ways & (s.minBlocks - 1)
	first = address(firstHigh(id.Hi)<<s.shift|low, count)
	second = address(secondHigh(id.Hi)<<s.shift|s.otherLow(low, id.Hi), count)
	return first, second
}

// blockPair is blockPairUnder for the current layout.
func (s *sizeClass) blockPair(id identity.ID) (first, second uint64) {
	return s.blockPairUnder(s.layout.Load(), id)
}

// hash returns the hash that assigned the counter with a tag to a block.
func (s *sizeClass) hash(block, tag uint64) uint64 {
	low := block & (s.minBlocks - 1)
	if tag&secondBit != 0 {
		return secondHigh(tag)<<s.shift | low
	}
	return firstHigh(tag)<<s.shift | low
}

// otherBlock returns the other block of the counter with a tag in a block.
func (s *sizeClass) otherBlock(layout, block, tag uint64) uint64 {
	return address(s.hash(s.otherLow(block, tag), tag^secondBit), layout&layoutCount)
}

// way returns the preferred slot of id in a block. If it is in use, a slot in the same cache line
// is preferred: most counters are found there, and their notes and cells can be prefetched.
func way(id identity.ID) uint64 { return id.Lo % ways }

// find returns the slot of a counter and its number, or nil.
func (s *sizeClass) find(tag uint64, id identity.ID) (*slot, uint64) {
	for {
		layout := s.layout.Load()
		slot, index := s.findUnder(layout, tag, id)
		if slot != nil || s.layout.Load() == layout {
			return slot, index
		}
	}
}

// findUnder is find under the given layout. If it returns nil, the counter may have moved meanwhile
// unless the layout is unchanged. The cache line of the preferred slot is searched first.
func (s *sizeClass) findUnder(layout, tag uint64, id identity.ID) (*slot, uint64) {
	first, second := s.blockPairUnder(layout, id)
	b := &s.blocks[first]
	i := way(id)
	if b[i].tag.Load() == tag {
		return &b[i], first*ways + i
	}
	if i ^= 1; b[i].tag.Load() == tag {
		return &b[i], first*ways + i
	}
	if i ^= 3; b[i].tag.Load() == tag {
		return &b[i], first*ways + i
	}
	if i ^= 1; b[i].tag.Load() == tag {
		return &b[i], first*ways + i
	}
	return s.search(tag, first, second)
}

// search searches all slots of two blocks.
func (s *sizeClass) search(tag uint64, first, second uint64) (*slot, uint64) {
	b := &s.blocks[first]
	for i := range b {
		if b[i].tag.Load() == tag {
			return &b[i], first*ways + uint64(i)
		}
	}
	b = &s.blocks[second]
	for i := range b {
		if b[i].tag.Load() == tag|secondBit {
			return &b[i], second*ways + uint64(i)
		}
	}
	return nil, 0
}

// lockPair locks the two blocks of id and returns their numbers.
func (s *sizeClass) lockPair(id identity.ID) (first, second uint64, held pairLock) {
	for {
		layout := s.layout.Load()
		first, second = s.blockPairUnder(layout, id)
		held = s.lockBlocks(first, second)
		now := s.layout.Load()
		if now == layout {
			return first, second, held
		}
		if a, b := s.blockPairUnder(now, id); a == first && b == second {
			return first, second, held
		}
		held.unlock()
	}
}

// A pairLock is the locks of two blocks, which may be the same lock.
type pairLock struct {
	s           *sizeClass
	first, last uint64
}

// lockBlocks locks two blocks against inserts.
func (s *sizeClass) lockBlocks(a, b uint64) pairLock {
	a %= stripes
	b %= stripes
	l := pairLock{s: s, first: min(a, b), last: max(a, b)}
	s.locks[l.first].Lock()
	if l.last != l.first {
		s.locks[l.last].Lock()
	}
	return l
}

func (l pairLock) unlock() {
	if l.last != l.first {
		l.s.locks[l.last].Unlock()
	}
	l.s.locks[l.first].Unlock()
}

// sizes are the numbers of cells of the size classes. Limits are usually round decimal numbers, so
// most logs fill theirs exactly: with powers of two a log of ten would need half as much again. A
// sliding window of ten sub-windows has five cells.
var sizes = [...]int{0, 2, 5, 10, 20, 30, 60, 100, 200, 300, 600, 1000, 2000, MaxLog}

// class returns the index of p's size class.
func (p *Policy) class() int {
	if p.isPrepared() {
		return p.ready.class
	}
	n := p.algorithm().cells(p)
	c := 0
	for sizes[c] < n {
		c++
	}
	return c
}

// CounterBytes returns the memory of one live counter of the policy, including its companion
// counters.
func CounterBytes(p Policy) int {
	n := slotBytes(sizes[p.class()])
	if p.Reserve != nil {
		n += CounterBytes(p.Reserve.hold)
	}
	if p.Penalty != nil {
		n += CounterBytes(*penaltyPolicy)
	}
	return n
}

// slotBytes returns the memory of a counter with the given number of cells.
func slotBytes(cells int) int {
	if cells == 0 {
		return blockBytes / ways
	}
	return blockBytes/ways + noteBytes + 8*cells
}
