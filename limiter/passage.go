package limiter

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A passage is how far a save has come through a size class. Those that the save began
// with have one until it ends.
type passage struct {
	// passed is how many blocks have been saved, the first ones. Block i is passed under
	// its lock, so whoever holds that knows whether it has been.
	passed atomic.Uint64
	// mu guards what follows. It comes after the locks of blocks.
	mu sync.Mutex
	// late are counters that moved from where the save had not been to where it had: so
	// many blocks of one each, as in a snapshot.
	late  []byte
	count int64
	// twice are counters that moved from where the save had been, of this size class or
	// another, to where it had not. some says whether there are any.
	twice map[identity.ID]bool
	some  atomic.Bool
}

// has reports whether a save never comes to a block any more. Size classes that were made
// since it began have no passage, and it does not come to them.
func (ps *passage) has(block uint64) bool { return ps == nil || block < ps.passed.Load() }

// finish passes all blocks if there are no more than so many, and reports whether it has.
func (ps *passage) finish(s *sizeClass, count uint64) bool {
	s.resizing.Lock()
	defer s.resizing.Unlock()
	if s.inUse() > count {
		return false
	}
	ps.passed.Store(math.MaxUint64)
	return true
}

// skips reports whether the counter with a tag in a block is one of ps.twice.
func (ps *passage) skips(s *sizeClass, block, tag uint64) bool {
	if !ps.some.Load() {
		return false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.twice[s.known(block, tag)]
}

// known returns what the tag of a counter and the block that it is in tell of its ID: enough to
// find its two blocks, which is all that tells it from others.
func (s *sizeClass) known(block, tag uint64) identity.ID {
	low := block & (s.start - 1)
	if tag&secondBit != 0 {
		low = s.otherLow(low, tag)
	}
	return identity.ID{Hi: tag &^ secondBit, Lo: low * ways}
}

// movesLocked tells a save, if there is one, that the frozen counter in a slot, whose word was
// word, gets its slot in a block of the size class to, which may be s itself. Of id it needs what
// the class to knows. The locks of both blocks are held.
func (s *sizeClass) movesLocked(index, word uint64, to *sizeClass, block uint64, id identity.ID) {
	from := s.passage.Load()
	into := from // one load: a save that began between two would take what it has not saved for saved
	if to != s {
		into = to.passage.Load() // no save begins during such a move; see beginSave
	}
	if from == nil && into == nil {
		return
	}
	tag := s.at(index).tag.Load()
	saved := from.has(index/ways) || from.skips(s, index/ways, tag)
	switch {
	case saved == into.has(block):
	case !saved:
		from.add(s, index, tag, word)
	default:
		into.skip(identity.ID{Hi: tag &^ secondBit, Lo: id.Lo / ways & (to.start - 1) * ways})
	}
}

// skip makes the save leave out a counter.
func (ps *passage) skip(known identity.ID) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.twice == nil {
		ps.twice = map[identity.ID]bool{}
	}
	ps.twice[known] = true
	ps.some.Store(true)
}

// add hands a counter over to the save.
func (ps *passage) add(s *sizeClass, index, tag, word uint64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.late = appendMask(ps.late, index/ways, 1<<(index%ways))
	ps.late = s.appendCounter(ps.late, index, tag, word)
	ps.count++
}
