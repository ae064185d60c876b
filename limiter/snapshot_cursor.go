package limiter

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A snapshotCursor tracks how far a running snapshot has written a size class. Every class that
// existed when the snapshot started has one until it ends.
type snapshotCursor struct {
	// written is the number of blocks written so far, from the first. It advances past a block
	// under the lock of that block, which a reader must hold.
	written atomic.Uint64
	// mu guards the fields below. It is acquired after the locks of blocks.
	mu sync.Mutex
	// moved are counters that moved from an unwritten block to a written one, encoded as blocks
	// with one counter each, and movedCount is their number.
	moved      []byte
	movedCount int64
	// skipped are counters that moved from a written block, of any class, to an unwritten one of
	// this class. anySkipped reports whether there are any.
	skipped    map[identity.ID]bool
	anySkipped atomic.Bool
}

// hasPassed reports whether the snapshot will not visit the block again. It never visits size
// classes created after its start, which have no cursor.
func (ps *snapshotCursor) hasPassed(block uint64) bool { return ps == nil || block < ps.written.Load() }

// finishClass marks all blocks as written if at most count are in use. It reports whether it did.
func (ps *snapshotCursor) finishClass(s *sizeClass, count uint64) bool {
	s.resizeMu.Lock()
	defer s.resizeMu.Unlock()
	if s.inUse() > count {
		return false
	}
	ps.written.Store(math.MaxUint64)
	return true
}

// skips reports whether the counter with a tag in a block is skipped.
func (ps *snapshotCursor) skips(s *sizeClass, block, tag uint64) bool {
	if !ps.anySkipped.Load() {
		return false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.skipped[s.partialID(block, tag)]
}

// partialID returns the part of a counter's ID that its tag and block determine: enough to find its
// two blocks and to identify it.
func (s *sizeClass) partialID(block, tag uint64) identity.ID {
	low := block & (s.minBlocks - 1)
	if tag&secondBit != 0 {
		low = s.otherLow(low, tag)
	}
	return identity.ID{Hi: tag &^ secondBit, Lo: low * ways}
}

// noteMoveLocked informs a running snapshot that the frozen counter in a slot, which had the given
// word, moves to a block of the size class to, which may be s. Of id only the bits that the class
// to stores are used. The locks of both blocks are held.
func (s *sizeClass) noteMoveLocked(index, word uint64, to *sizeClass, block uint64, id identity.ID) {
	from := s.cursor.Load()
	into := from // a single load: with two, a snapshot that starts in between would take an unwritten counter for written
	if to != s {
		into = to.cursor.Load() // no snapshot starts during a move between classes; see beginSave
	}
	tag := s.slotAt(index).tag.Load()
	if from == nil && into == nil || !isSaved(tag) {
		return
	}
	saved := from.hasPassed(index/ways) || from.skips(s, index/ways, tag)
	switch {
	case saved == into.hasPassed(block):
	case !saved:
		from.add(s, index, tag, word)
	default:
		into.skip(identity.ID{Hi: tag &^ secondBit, Lo: id.Lo / ways & (to.minBlocks - 1) * ways})
	}
}

// skip makes the snapshot omit a counter.
func (ps *snapshotCursor) skip(known identity.ID) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.skipped == nil {
		ps.skipped = map[identity.ID]bool{}
	}
	ps.skipped[known] = true
	ps.anySkipped.Store(true)
}

// add passes a counter to the snapshot.
func (ps *snapshotCursor) add(s *sizeClass, index, tag, word uint64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.moved = appendMask(ps.moved, index/ways, 1<<(index%ways))
	ps.moved = s.appendCounter(ps.moved, index, tag, word)
	ps.movedCount++
}
