package limiter

import (
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"sync/atomic"
)

// A Partition is memory of a [Table] that is reserved for some counters: other counters cannot
// evict them, and they cannot evict others. It has a size class for each counter size. No counter
// moves to another partition.
type Partition struct {
	table *Table
	name  string
	// slots is the maximum number of counters of each size, 0 in the common partition, or retired.
	slots   atomic.Int64
	classes [len(sizes)]atomic.Pointer[sizeClass]
}

// retired is the bound of a partition that its table has removed. Requests that began before can
// still charge its counters, but it takes no memory from the table, and no snapshot contains it.
const retired = -1

// maxPinned is the bound of the partition of pinned counters.
const maxPinned = 1 << 20

// Partitions reserves memory for the counters of each name in bounds: up to the given number of
// counters of each size, rounded up to a multiple of eight and at least 16. Memory is taken as it
// is used, if necessary from the common partition, which keeps at least a quarter of the table. A
// bound below 1 and a name without a bound mean the common partition.
//
// Counters are kept when a bound changes, except those for which a lower bound has no room. When a
// name gets its first bound, its partition is empty. When it loses its bound, its partition and the
// counters in it are removed.
//
// Partitions returns the partition of each name, nil for the common one. It returns an error and
// changes nothing if the bounds need more than half of the table for one-word counters.
func (t *Table) Partitions(now Time, bounds map[string]int64) (map[string]*Partition, error) {
	t.growthMu.Lock()
	defer t.growthMu.Unlock()
	half := t.bytes / 2 / int64(slotBytes(0))
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		n := bounds[name]
		if half -= max(0, min(n, t.bytes)); half < 0 {
			return nil, fmt.Errorf("partition %q of %d counters: all partitions together must not exceed %d, half of the memory", name, n, t.bytes/2/int64(slotBytes(0)))
		}
	}
	for name, old := range t.partitions {
		if bounds[name] < 1 {
			delete(t.partitions, name)
			old.retireLocked()
		}
	}
	partitions := map[string]*Partition{}
	for name, n := range bounds {
		partitions[name] = nil
		if n < 1 {
			continue
		}
		p := t.partitions[name]
		if p == nil {
			p = &Partition{table: t, name: name}
			t.partitions[name] = p
		}
		p.slots.Store(n)
		p.shrinkToBound(now)
		partitions[name] = p
	}
	return partitions, nil
}

// retireLocked returns p's memory to the budget of the table. The memory itself is freed when no
// request uses it any more. The caller holds growthMu.
func (p *Partition) retireLocked() {
	p.slots.Store(retired) // from now on, no size class of p grows
	t := p.table
	for s := range p.sizeClasses() {
		s.resizeMu.Lock()
		t.freeBytes.Add(s.bytes())
		s.resizeMu.Unlock()
		t.reclaimed.Add(s.reclaimed.Load())
		t.evicted.Add(s.evicted.Load())
	}
}

// partition returns the partition of b's counters of a policy.
func (t *Table) partition(b *Batch, p *Policy) *Partition {
	if p.Pinned {
		return &t.pinned
	}
	if b.Partition != nil {
		return b.Partition
	}
	return &t.common
}

// class returns the size class of a policy's counters and creates it if necessary.
func (p *Partition) class(policy *Policy) *sizeClass {
	c := policy.class()
	if have := p.classes[c].Load(); have != nil {
		return have
	}
	t := p.table
	t.growthMu.Lock()
	defer t.growthMu.Unlock()
	if have := p.classes[c].Load(); have != nil {
		return have
	}
	start := uint64(2)
	if p == &t.common {
		// More minimum blocks mean more bits to identify counters.
		each := int64(slotBytes(sizes[c])) * ways
		start = 1 << (bits.Len64(uint64(max(2,
			min(t.bytes/minBlocksShare, maxMinBytes, t.freeBytes.Load()/2)/each))) - 1)
	}
	return p.newClassLocked(c, start)
}

// newClassLocked creates a size class with the given minimum number of blocks. The caller holds
// growthMu.
func (p *Partition) newClassLocked(c int, start uint64) *sizeClass {
	t := p.table
	each := int64(slotBytes(sizes[c])) * ways
	s := newSizeClass(sizes[c], start, max(start, uint64(t.bytes/each))) //nolint:gosec // positive
	s.nonces = &t.nonces
	if p.slots.Load() != retired {
		t.freeBytes.Add(-s.bytes())
	}
	p.classes[c].Store(s)
	return s
}

const (
	// minBlocksShare is the minimum share of the table of a size class: 1/128.
	minBlocksShare = 128
	// maxMinBytes limits that share, in bytes. A few counters already touch all of it, and the
	// system takes 0.5 to 2 ns to clear a byte.
	maxMinBytes = 4 << 20
)

// maxBlocks returns the maximum number of blocks of a size class of p.
func (p *Partition) maxBlocks() uint64 {
	switch n := p.slots.Load(); {
	case n > 0:
		return max(2, (uint64(n)+ways-1)/ways)
	case n == retired:
		return 0
	default:
		return layoutCount
	}
}

// shrinkToBound removes the blocks beyond p's bound.
func (p *Partition) shrinkToBound(now Time) {
	for s := range p.sizeClasses() {
		s.resizeMu.Lock()
		for s.inUse() > max(p.maxBlocks(), s.minBlocks) {
			if !s.mergeLocked(p.table, now, true) {
				runtime.Gosched() // to the writer of a counter
				continue
			}
			p.table.freeBytes.Add(s.blockSize())
		}
		s.resizeMu.Unlock()
	}
}

// sizeClasses returns p's size classes.
func (p *Partition) sizeClasses() iter.Seq[*sizeClass] {
	return func(yield func(*sizeClass) bool) {
		for c := range p.classes {
			if s := p.classes[c].Load(); s != nil && !yield(s) {
				return
			}
		}
	}
}
