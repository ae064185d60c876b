package limiter

import (
	"math"
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
// may have its slot in either of two blocks. It has no pointers for the garbage
// collector to follow.
type sizeClass struct {
	blocks []block
	// size is how many cells a counter has. Those of slot i begin at i*size, its
	// note is the ith.
	size  int
	notes []note
	cells []atomic.Uint64
	// roomy is how many free slots make the preferred block good enough. Below it
	// the emptier of the two is taken, so that pairs fill evenly.
	roomy int
	// mapped is how much of its memory is not in Go's heap.
	mapped int64
	// locks serialise the inserts of new counters, so that a counter never gets two
	// slots. Block i belongs to lock i mod stripes; two are
	// locked in ascending order. Counters that have a slot need no lock.
	locks *[stripes]sync.Mutex
}

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

// fetch brings the note of a slot and its first cells into the cache, both at once:
// every atomic store waits for the memory of the one before.
func (s *sizeClass) fetch(index uint64) {
	s.note(index).end.Load()
	s.cell(index, 0).Load()
}

// touch begins to fetch what is beside the slot that id is likely to have or to get.
func (s *sizeClass) touch(id identity.ID) {
	first, _ := s.pair(id)
	index := first*ways + way(id)
	prefetch(&s.note(index).past)
	prefetch(s.cell(index, 0))
}

// at returns a slot by its number.
func (s *sizeClass) at(index uint64) *slot { return &s.blocks[index/ways][index%ways] }

// pair returns the numbers of the two blocks in which id may have its slot, the
// preferred one first. They differ.
func (s *sizeClass) pair(id identity.ID) (first, second uint64) {
	n := uint64(len(s.blocks))
	first = id.Lo & math.MaxUint32 * n >> 32
	second = id.Lo >> 32 * n >> 32
	if second == first {
		second++
		if second == n {
			second = 0
		}
	}
	return first, second
}

// way returns the place in a block that id has if it was free, else one in the same
// line of memory: most counters are found there, and what is beside the slot
// can be fetched before it is known that they are.
func way(id identity.ID) uint64 { return id.Lo % ways }

// find returns the slot with the tag and its number, nil if there is none. The line of
// the preferred slot comes first, since nothing more must be fetched for it.
func (s *sizeClass) find(tag uint64, id identity.ID) (*slot, uint64) {
	first, second := s.pair(id)
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

// search is find in all slots of two blocks.
func (s *sizeClass) search(tag uint64, first, second uint64) (*slot, uint64) {
	b := &s.blocks[first]
	for i := range b {
		if b[i].tag.Load() == tag {
			return &b[i], first*ways + uint64(i)
		}
	}
	b = &s.blocks[second]
	for i := range b {
		if b[i].tag.Load() == tag {
			return &b[i], second*ways + uint64(i)
		}
	}
	return nil, 0
}

// A pairLock is the locks of two blocks, which may be one and the same.
type pairLock struct {
	s           *sizeClass
	first, last uint64
}

// lock locks the two blocks against other inserts.
func (s *sizeClass) lock(a, b uint64) pairLock {
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
