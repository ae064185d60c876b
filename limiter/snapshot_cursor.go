package limiter

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A passage is how far a save has come through a size class. Those that the save began
// with have one until it ends.
type snapshotCursor struct {
	// written is how many blocks have been saved, the first ones. Block i is passed under
	// its lock, so whoever holds that knows whether it has been.
	written atomic.Uint64
	// mu guards what follows. It comes after the locks of blocks.
	mu sync.Mutex
	// moved are counters that moved from where the save had not been to where it had: so
	// many blocks of one each, as in a snapshot.
	moved      []byte
	movedCount int64
	// skipped are counters that moved from where the save had been, of this size class or
	// another, to where it had not. some says whether there are any.
	skipped    map[identity.ID]bool
	anySkipped atomic.Bool
}

// hasPassed reports whether a save never comes to a block any more. Size classes that were made
// since it began have no passage, and it does not come to them.
func (ps *snapshotCursor) hasPassed(block uint64) bool { return ps == nil || block < ps.written.Load() }

// finishClass passes all blocks if there are no more than so many, and reports whether it has.
func (ps *snapshotCursor) finishClass(s *sizeClass, count uint64) bool {
	s.resizeMu.Lock()
	defer s.resizeMu.Unlock()
	if s.inUse() > count {
		return false
	}
	ps.written.Store(math.MaxUint64)
	return true
}

// skips reports whether the counter with a tag in a block is one of ps.twice.
func (ps *snapshotCursor) skips(s *sizeClass, block, tag uint64) bool {
	if !ps.anySkipped.Load() {
		return false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.skipped[s.partialID(block, tag)]
}

// partialID returns what the tag of a counter and the block that it is in tell of its ID: enough to
// find its two blocks, which is all that tells it from others.
func (s *sizeClass) partialID(block, tag uint64) identity.ID {
	low := block & (s.minBlocks - 1)
	if tag&secondBit != 0 {
		low = s.otherLow(low, tag)
	}
	return identity.ID{Hi: tag &^ secondBit, Lo: low * ways}
}

// noteMoveLocked tells a save, if there is one, that the frozen counter in a slot, whose word was
// word, gets its slot in a block of the size class to, which may be s itself. Of id it needs what
// the class to knows. The locks of both blocks are held.
func (s *sizeClass) noteMoveLocked(index, word uint64, to *sizeClass, block uint64, id identity.ID) {
	from := s.cursor.Load()
	into := from // one load: a save that began between two would take what it has not saved for saved
	if to != s {
		into = to.cursor.Load() // no save begins during such a move; see beginSave
	}
	if from == nil && into == nil {
		return
	}
	tag := s.slotAt(index).tag.Load()
	saved := from.hasPassed(index/ways) || from.skips(s, index/ways, tag)
	switch {
	case saved == into.hasPassed(block):
	case !saved:
		from.add(s, index, tag, word)
	default:
		into.skip(identity.ID{Hi: tag &^ secondBit, Lo: id.Lo / ways & (to.minBlocks - 1) * ways})
	}
}

// skip makes the save leave out a counter.
func (ps *snapshotCursor) skip(known identity.ID) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.skipped == nil {
		ps.skipped = map[identity.ID]bool{}
	}
	ps.skipped[known] = true
	ps.anySkipped.Store(true)
}

// add hands a counter over to the save.
func (ps *snapshotCursor) add(s *sizeClass, index, tag, word uint64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.moved = appendMask(ps.moved, index/ways, 1<<(index%ways))
	ps.moved = s.appendCounter(ps.moved, index, tag, word)
	ps.movedCount++
}
