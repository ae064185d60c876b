package limiter

import (
	"runtime"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// All size classes share the memory budget of the table. A class takes memory for a block when a
// counter finds no free slot. If the budget is used up, it takes memory from other classes:
//
//   - blocks that can be merged without evicting a live counter;
//   - if it is in the common partition, blocks of the largest class there, as long as that is
//     larger than itself, so that a flood of counters of one size leaves room for other sizes;
//   - if it is in a reserved partition, blocks of the largest class of the common partition, which
//     keeps at least a quarter of the table.
//
// Otherwise it evicts counters of its own.

// commonShare is the share of the table, 1/4, that is never taken for partitions.
const commonShare = 4

// makeRoom makes room for a counter id in a size class without evicting counters of that class. It
// reports whether inserting should be tried again.
//
// Splitting a block seldom affects a block of id. But counters in id's blocks may move to the new
// block or to slots that others left; the search gets deeper with the number of tries.
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

// searchInterval limits the cost of a flood that has filled the table: only one of this many
// counters without a free slot searches for room, which takes some microseconds.
const searchInterval = 16

// maxDepth is the maximum length of a chain of moves that makes room.
const maxDepth = 3

// growAhead adds a block to a size class that is getting full, as long as half of the table is
// unused: counters are found faster in emptier classes.
func (t *Table) growAhead(at Time, partition *Partition, s *sizeClass) {
	if t.freeBytes.Load() > t.bytes/2 {
		t.grow(at, partition, s)
	}
}

// grow adds a block to a size class. It returns false if the class cannot grow. It returns true if
// it has grown or is being resized, so inserting should be tried again.
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
		runtime.Gosched() // to the writer of a counter
	}
	return true
}

// takeMemory takes n bytes from the budget. It returns false if fewer are left.
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

// squeezeLocked takes the memory of a block for s from size classes of the common partition. It
// returns false if they have none to give. The caller holds s.resizeMu.
func (t *Table) squeezeLocked(at Time, partition *Partition, s *sizeClass) bool {
	t.squeezeMu.Lock()
	defer t.squeezeMu.Unlock()
	need := s.blockSize()
	for donor := range t.common.sizeClasses() {
		for donor != s && t.shrink(at, donor, false) {
			if t.takeMemory(need) {
				return true
			}
		}
	}
	for {
		var largest *sizeClass
		all := int64(0)
		for donor := range t.common.sizeClasses() {
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

// shrink returns the memory of a block of s to the budget. It returns false without effect if that
// would evict a live counter and evict is false, or if s is being resized.
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
