package limiter

import (
	"fmt"
	"sync/atomic"
)

// reserveShare is the part of the memory that is kept for counters of sizes that
// were not expected when the table was made, and for partitions: one in so many.
const reserveShare = 8

// closed is the tag of a slot that is never used.
const closed = ^uint64(0)

// Partition is a part of a [Table] that is reserved for some counters: others cannot
// evict them, nor can they evict others. It has a size class for each size of counter.
// A request that still uses a partition while another replaces it is decided in the
// old one.
type Partition struct {
	table *Table
	// slots is how many counters of a size fit at most; 0 in the common partition.
	slots   int64
	classes [len(sizes)]atomic.Pointer[sizeClass]
}

// Partition returns the partition of that name, which holds at most maxCounters counters
// of one size; the same one if it exists with that bound already. Since a counter
// has few slots to choose from, some are evicted from about two thirds of the
// bound on. A partition whose bound changes starts anew. maxCounters below 1 means the
// table's common partition, which is nil. Partition returns an error if the table has no
// room for it.
func (t *Table) Partition(name string, maxCounters int64) (*Partition, error) {
	t.growth.Lock()
	defer t.growth.Unlock()
	old := t.partitions[name]
	if old != nil && old.slots == maxCounters {
		return old, nil
	}
	left := t.spare
	if old != nil {
		left += old.bytes()
	}
	if maxCounters < 1 {
		delete(t.partitions, name)
		t.spare = left
		return nil, nil //nolint:nilnil // nil is the common partition
	}
	if most := left / int64(slotBytes(0)); maxCounters > most {
		return nil, fmt.Errorf("partition for %d counters: must be at most %d, an eighth of the table less other partitions", maxCounters, most)
	}
	t.spare = left
	s := &Partition{table: t, slots: maxCounters}
	s.growLocked(0)
	if t.partitions == nil {
		t.partitions = map[string]*Partition{}
	}
	t.partitions[name] = s
	return s, nil
}

// partition returns where b's counters are.
func (t *Table) partition(b *Batch) *Partition {
	if b.Partition != nil {
		return b.Partition
	}
	return &t.common
}

// class returns the size class of p's counters, which is made if it was not expected.
func (s *Partition) class(p *Policy) *sizeClass {
	c := p.class()
	if have := s.classes[c].Load(); have != nil {
		return have
	}
	s.table.growth.Lock()
	defer s.table.growth.Unlock()
	if have := s.classes[c].Load(); have != nil {
		return have
	}
	return s.growLocked(c)
}

// growLocked gives the partition a size class out of the reserve: half of what is left,
// or all its slots where they are bounded, and two blocks even if nothing is left.
func (s *Partition) growLocked(c int) *sizeClass {
	each := int64(slotBytes(sizes[c]))
	blocks := s.table.spare / 2 / each / ways
	if s.slots > 0 {
		blocks = (min(s.slots, s.table.spare/each) + ways - 1) / ways
	}
	sc := newSizeClass(sizes[c], max(2, blocks))
	if s.slots > 0 {
		for i := s.slots; i < int64(len(sc.blocks))*ways; i++ {
			sc.at(uint64(i)).tag.Store(closed)
		}
	}
	s.table.spare -= sc.bytes()
	s.classes[c].Store(sc)
	return sc
}

// bytes returns the memory of all size classes.
func (s *Partition) bytes() int64 {
	n := int64(0)
	for c := range s.classes {
		if sc := s.classes[c].Load(); sc != nil {
			n += sc.bytes()
		}
	}
	return n
}
