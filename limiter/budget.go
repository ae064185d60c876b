package limiter

import (
	"runtime"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// The memory of a table is one budget. A size class takes a block's worth of it when a
// counter finds no room. When nothing is left, it takes from others:
//
//   - what they do not need any more, because their counters have expired;
//   - if it is in the common partition, from the size class there that has most, as long as
//     that has more than itself. So a flood of counters of one size leaves room for those
//     of another;
//   - if it is reserved, from the largest of the common partition, as long as that
//     keeps a quarter of the table.
//
// Else counters of its own are evicted.

// commonShare is the part of the table that is never taken for partitions: one in so
// many.
const commonShare = 4

// makeRoom makes room for a counter id in a size class of a partition, without evicting any
// of that class. It reports whether it is worth trying again.
//
// The block that is split is hardly one of id's. But counters of those may go there, or
// where others leave for it, which takes a longer search the more often there was none.
func (t *Table) makeRoom(at Time, partition *Partition, s *sizeClass, id identity.ID, tries int) bool {
	if s.skipSearches.Load() > 0 && s.skipSearches.Add(-1) >= 0 {
		return false
	}
	if s.displace(t, at, id, 0) {
		return true
	}
	if !t.grow(at, partition, s) {
		s.skipSearches.Store(searchInterval - 1)
		return false
	}
	s.displace(t, at, id, min(tries, maxDepth))
	return true
}

// searchInterval bounds what a flood costs that has filled the table: of so many counters that
// find no room one looks for more, which takes some microseconds.
const searchInterval = 16

// maxDepth is how many counters may have to move on for one that moves.
const maxDepth = 3

// growAhead adds a block to a size class that begins to be crowded, as long as half of the
// table is left: the emptier it is, the sooner a counter is found.
func (t *Table) growAhead(at Time, partition *Partition, s *sizeClass) {
	if t.freeBytes.Load() > t.bytes/2 {
		t.grow(at, partition, s)
	}
}

// grow adds a block to a size class. It reports false if there can be none. Otherwise it has,
// or others are at work on the class, so that it is worth trying again.
func (t *Table) grow(at Time, partition *Partition, s *sizeClass) bool {
	if !s.resizeMu.TryLock() {
		runtime.Gosched()
		return true
	}
	defer s.resizeMu.Unlock()
	if s.inUse() >= min(partition.maxBlocks(), uint64(len(s.blocks))) {
		return false
	}
	if !t.takeMemory(s.blockSize()) && !t.squeezeLocked(at, partition, s) {
		return false
	}
	if !s.splitLocked() {
		t.freeBytes.Add(s.blockSize())
		runtime.Gosched() // to who writes one of the counters
	}
	return true
}

// takeMemory takes memory from the budget. It reports false, and takes nothing, if there is
// not so much.
func (t *Table) takeMemory(n int64) bool {
	for {
		left := t.freeBytes.Load()
		if left < n {
			return false
		}
		if t.freeBytes.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

// squeezeLocked takes the memory of a block for s, whose resizing is held, from other size
// classes. It reports false if they have none to give.
func (t *Table) squeezeLocked(at Time, partition *Partition, s *sizeClass) bool {
	t.squeezeMu.Lock()
	defer t.squeezeMu.Unlock()
	need, donors := s.blockSize(), *t.donors.Load()
	for _, donor := range donors {
		for donor != s && t.shrink(at, donor, false) {
			if t.takeMemory(need) {
				return true
			}
		}
	}
	for {
		var largest *sizeClass
		all := int64(0)
		for _, donor := range donors {
			all += donor.bytes()
			if donor != s && donor.inUse() > donor.minBlocks && (largest == nil || donor.bytes() > largest.bytes()) {
				largest = donor
			}
		}
		switch {
		case largest == nil:
			return false
		case partition.slots.Load() > 0 && all <= t.bytes/commonShare:
			return false
		case partition.slots.Load() == 0 && largest.bytes() < s.bytes()+need+largest.blockSize():
			return false
		case !t.shrink(at, largest, true):
			return false
		case t.takeMemory(need):
			return true
		}
	}
}

// shrink gives the memory of a block of s back to the budget. It reports false, and does
// nothing, if a live counter would have to be evicted and may not be, or if somebody else
// resizes s.
func (t *Table) shrink(at Time, s *sizeClass, evict bool) bool {
	if !s.resizeMu.TryLock() {
		return false
	}
	defer s.resizeMu.Unlock()
	if !s.mergeLocked(t, at, evict) {
		return false
	}
	t.freeBytes.Add(s.blockSize())
	return true
}
