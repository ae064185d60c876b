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
	lineWays   = 4 // of one cache line
	stripes    = 256

	// generationBit, the high bit of a one-word counter, flips when its slot changes
	// hands.
	generationBit = 1 << 63
	// dead is the word of a slot that is changing hands, whatever its size class. A reader
	// that meets it waits for the lock of the block's stripe.
	dead = ^uint64(0)
)

// A slot holds one counter.
type slot struct {
	// tag says whose counter it is and how to read word; see tagOf. 0 is a slot
	// never used. It is written only under the lock of the block's stripe.
	tag atomic.Uint64
	// word is the counter, or dead while the slot changes hands.
	word atomic.Uint64
}

// A block is two cache lines of slots. Larger pieces of memory are aligned to
// pages, so a block never straddles a third line; a test holds this.
type block [ways]slot

// A note says of a counter with cells what need not be in its word. It changes
// with the cells.
type note struct {
	// end is when the counter will equal an absent one, a [Time].
	end atomic.Int64
	// past is a ring's sum of what its cells hold.
	past atomic.Uint64
}

const noteBytes = 16

// A sizeClass holds counters of one size: a set-associative array in which a counter
// may have its slot in either of two blocks. It grows and shrinks by a block at a time
// while it is used; see grow.go. It has no pointers for the garbage collector to
// follow.
type sizeClass struct {
	// blocks are all that there may be. Those in use come first; see layout.
	blocks []block
	// size is how many cells a counter has. Those of slot i begin at i*size, its
	// note is the ith.
	size  int
	notes []note
	cells []atomic.Uint64
	// minFree is how many free slots make the preferred block good enough. Below it
	// the emptier of the two is taken, so that pairs fill evenly.
	minFree int
	// minBlocks is how many blocks there are at least, a power of two, and shift its
	// logarithm.
	minBlocks uint64
	shift     uint8
	// layout has the number of blocks in use in its low 32 bits. The high ones grow
	// whenever counters move, so a reader that has found a counter nowhere knows
	// whether to search again.
	layout atomic.Uint64
	// resizeMu is held while the number of blocks changes.
	resizeMu sync.Mutex
	// memory is what is mapped beside Go's heap, or nil.
	memory []byte
	// nonces are the table's.
	nonces *nonceKey
	// order is the class's place among all of the table, for those who lock two.
	order uint64
	// skipSearches is how many counters that find no room need not look for any, because there
	// was none a moment ago.
	skipSearches atomic.Int64
	// reclaimed and evicted count as in [Stats].
	reclaimed, evicted atomic.Uint64
	// cursor is that of the save that is under way, if any.
	cursor atomic.Pointer[snapshotCursor]
	// locks serialise the inserts of new counters, so that a counter never gets two
	// slots. Block i belongs to lock i mod stripes; two are
	// locked in ascending order. Counters that have a slot need no lock.
	locks *[stripes]sync.Mutex
}

// Parts of a layout.
const (
	layoutMove  = 1 << 32 // one move more
	layoutCount = layoutMove - 1
)

// inUse returns how many blocks are in use.
func (s *sizeClass) inUse() uint64 { return s.layout.Load() & layoutCount }

// blockSize returns the memory of a block and of what is beside it.
func (s *sizeClass) blockSize() int64 { return ways * int64(slotBytes(s.size)) }

// bytes returns the memory of the blocks in use.
func (s *sizeClass) bytes() int64 { return int64(s.inUse()) * s.blockSize() } //nolint:gosec // at most MaxBytes

// stride is size as a number of cells.
func (s *sizeClass) stride() uint64 { return uint64(s.size) } //nolint:gosec // not negative

// note returns the note of a slot.
func (s *sizeClass) note(index uint64) *note { return &s.notes[index] }

// cell returns the nth cell of a slot.
func (s *sizeClass) cell(index, n uint64) *atomic.Uint64 { return &s.cells[index*s.stride()+n] }

// cellsOf returns all cells of a slot.
func (s *sizeClass) cellsOf(index uint64) []atomic.Uint64 {
	n := s.stride()
	return s.cells[index*n:][:n]
}

// loadCells brings the note of a slot and its first cells into the cache, both at once:
// every atomic store waits for the memory of the one before.
func (s *sizeClass) loadCells(index uint64) {
	s.note(index).end.Load()
	s.cell(index, 0).Load()
}

// prefetchSlot begins to fetch what is beside the slot that id is likely to have or to get.
func (s *sizeClass) prefetchSlot(id identity.ID) {
	first, _ := s.blockPair(id)
	index := first*ways + way(id)
	prefetch(&s.note(index).past)
	prefetch(s.cell(index, 0))
}

// slotAt returns a slot by its number.
func (s *sizeClass) slotAt(index uint64) *slot { return &s.blocks[index/ways][index%ways] }

// A counter's first and second block have their number from a hash each. Its low bits,
// as many as the size class has at least, are of ID.Lo; the others are bits of the
// tag. So a slot tells both hashes of its counter: the low bits from where it is, the
// others from its tag.

// firstHigh and secondHigh return the high bits of a counter's two hashes, given its tag
// or ID.Hi.
func firstHigh(tag uint64) uint64  { return tag >> kindBits }
func secondHigh(tag uint64) uint64 { return tag >> 16 }

// otherLow turns the low bits of one of a counter's hashes into those of the other.
// They differ, so the two blocks do.
func (s *sizeClass) otherLow(low, tag uint64) uint64 {
	return (low ^ (tag>>28 | 1)) & (s.minBlocks - 1)
}

// address returns the number of the block that a hash leads to, by linear hashing
// (Litwin, "Linear hashing: a new tool for file and table addressing", 1980): with a
// block more, only counters of one other block have another address.
func address(hash, count uint64) uint64 {
	mask := uint64(1)<<bits.Len64(count-1) - 1
	if i := hash & mask; i < count {
		return i
	}
	return hash & (mask >> 1)
}

// blockPairUnder returns the numbers of the two blocks in which id may have its slot, the
// preferred one first, under a layout.
func (s *sizeClass) blockPairUnder(layout uint64, id identity.ID) (first, second uint64) {
	count, low := layout&layoutCount, id.Lo/ways&(s.minBlocks-1)
	first = address(firstHigh(id.Hi)<<s.shift|low, count)
	second = address(secondHigh(id.Hi)<<s.shift|s.otherLow(low, id.Hi), count)
	return first, second
}

// blockPair is pairOf under the layout of now.
func (s *sizeClass) blockPair(id identity.ID) (first, second uint64) {
	return s.blockPairUnder(s.layout.Load(), id)
}

// hash returns the hash that led the counter with a tag to a block.
func (s *sizeClass) hash(block, tag uint64) uint64 {
	low := block & (s.minBlocks - 1)
	if tag&secondBit != 0 {
		return secondHigh(tag)<<s.shift | low
	}
	return firstHigh(tag)<<s.shift | low
}

// otherBlock returns the other block in which the counter with a tag may be.
func (s *sizeClass) otherBlock(layout, block, tag uint64) uint64 {
	return address(s.hash(s.otherLow(block, tag), tag^secondBit), layout&layoutCount)
}

// way returns the place in a block that id has if it was free, else one in the same
// line of memory: most counters are found there, and what is beside the slot
// can be fetched before it is known that they are.
func way(id identity.ID) uint64 { return id.Lo % ways }

// find returns the slot of a counter and its number, nil if there is none.
func (s *sizeClass) find(tag uint64, id identity.ID) (*slot, uint64) {
	for {
		layout := s.layout.Load()
		slot, index := s.findUnder(layout, tag, id)
		if slot != nil || s.layout.Load() == layout {
			return slot, index
		}
	}
}

// findUnder is find under a layout. A counter that it finds nowhere may have moved
// meanwhile, unless the layout is still the same. The line of the preferred slot comes
// first, since nothing more must be fetched for it.
func (s *sizeClass) findUnder(layout, tag uint64, id identity.ID) (*slot, uint64) {
	first, second := s.blockPairUnder(layout, id)
	b, i := &s.blocks[first], way(id)
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

// search is findUnder in all slots of two blocks.
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

// lockPair locks the two blocks in which id may have its slot, and returns them.
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

// A pairLock is the locks of two blocks, which may be one and the same.
type pairLock struct {
	s           *sizeClass
	first, last uint64
}

// lockBlocks locks the two blocks against other inserts.
func (s *sizeClass) lockBlocks(a, b uint64) pairLock {
	a, b = a%stripes, b%stripes
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

// sizes are the numbers of cells of a counter, one for each size class. People limit
// by round decimal numbers, so most logs fill theirs: a log of ten would take half as
// much again among powers of two. Rings of ten have five, since a cell holds two of
// their sub-windows.
var sizes = [...]int{0, 2, 5, 10, 20, 30, 60, 100, 200, 300, 600, 1000, 2000, MaxLog}

// class returns the index into classes of p's counters.
func (p *Policy) class() int {
	if p.isPrepared() {
		return p.ready.class
	}
	n, c := p.algorithm().cells(p), 0
	for sizes[c] < n {
		c++
	}
	return c
}

// CounterBytes returns the memory that one live counter of the policy takes, with what it may hold.
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

// slotBytes returns the memory that a counter with so many cells takes.
func slotBytes(cells int) int {
	if cells == 0 {
		return blockBytes / ways
	}
	return blockBytes/ways + noteBytes + 8*cells
}
