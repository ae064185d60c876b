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

// Partition is a part of a [Table] that is reserved for some counters: others cannot
// evict them, nor can they evict others. It has a size class for each size of counter.
type Partition struct {
	table *Table
	name  string
	// slots is how many counters of a size fit at most; 0 in the common partition.
	slots   atomic.Int64
	classes [len(sizes)]atomic.Pointer[sizeClass]
	// others are the partitions that may still have counters that belong here, or nil.
	// A counter moves when it is charged.
	others atomic.Pointer[[]*Partition]
}

// Partitions reserves memory for the counters of each name in bounds: at most so many of
// one size, rounded up to eights and at least 16. The memory is taken as it is used,
// if need be from the common partition, as long as that keeps a quarter of the table.
// A bound below 1 means the common partition, and so does a name that is not in bounds.
//
// Counters stay when a bound changes, but for those that a lower one has no room for.
// They also stay when a name gets its first bound or loses it: they move when they
// are charged. A request that still uses a partition that lost its bound is decided there.
//
// Partitions returns the partition of each name, nil for the common one. It returns an
// error, and changes nothing, if the bounds need more than half of the table for counters
// of one word.
func (t *Table) Partitions(now Time, bounds map[string]int64) (map[string]*Partition, error) {
	t.growthMu.Lock()
	defer t.growthMu.Unlock()
	half := t.bytes / 2 / int64(slotBytes(0))
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		n := bounds[name]
		if half -= max(0, min(n, t.bytes)); half < 0 {
			return nil, fmt.Errorf("partition %q of %d counters: all partitions together may have %d, which take half of the memory", name, n, t.bytes/2/int64(slotBytes(0)))
		}
	}
	for name, old := range t.partitions {
		if bounds[name] < 1 {
			old.slots.Store(0)
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
		if p.slots.Load() == 0 && t.common.hasClasses() {
			p.others.Store(&[]*Partition{&t.common})
		}
		p.slots.Store(n)
		p.shrinkToBound(now)
		partitions[name] = p
	}
	t.retireLocked(now)
	return partitions, nil
}

// retireLocked forgets the partitions without a bound that have no live counter, and
// lets the common partition search the others of them. The growth lock is held.
func (t *Table) retireLocked(now Time) {
	var retired []*Partition
	for name, p := range t.partitions {
		switch {
		case p.slots.Load() > 0:
		case p.live(now) == 0:
			delete(t.partitions, name)
			for s := range p.sizeClasses() {
				t.freeBytes.Add(s.bytes())
				t.reclaimed.Add(s.reclaimed.Load())
				t.evicted.Add(s.evicted.Load())
			}
		default:
			retired = append(retired, p)
		}
	}
	if len(retired) > 0 {
		t.common.others.Store(&retired)
	} else {
		t.common.others.Store(nil)
	}
	t.listDonorsLocked()
}

// listDonorsLocked lists the size classes that others may take memory from. The growth lock
// is held.
func (t *Table) listDonorsLocked() {
	donors := slices.Collect(t.common.sizeClasses())
	for _, p := range t.partitions {
		if p.slots.Load() == 0 {
			donors = slices.AppendSeq(donors, p.sizeClasses())
		}
	}
	t.donors.Store(&donors)
}

// partition returns where b's counters are.
func (t *Table) partition(b *Batch) *Partition {
	if b.Partition != nil {
		return b.Partition
	}
	return &t.common
}

// class returns the size class of a policy's counters, which is made if there is none.
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
		// The more blocks there are at least, the more bits tell counters apart.
		each := int64(slotBytes(sizes[c])) * ways
		start = 1 << (bits.Len64(uint64(max(2, min(t.bytes/minBlocksShare, maxMinBytes, t.freeBytes.Load()/2)/each))) - 1)
	}
	return p.newClassLocked(c, start)
}

// newClassLocked makes a size class that begins with so many blocks. The table's growth lock
// is held.
func (p *Partition) newClassLocked(c int, start uint64) *sizeClass {
	t, each := p.table, int64(slotBytes(sizes[c]))*ways
	s := newSizeClass(sizes[c], start, max(start, uint64(t.bytes/each))) //nolint:gosec // positive
	t.classes++
	s.order, s.nonces = t.classes, &t.nonces
	t.freeBytes.Add(-s.bytes())
	p.classes[c].Store(s)
	t.listDonorsLocked()
	return s
}

const (
	// minBlocksShare is the part of the table that a size class has at least: one in so many.
	minBlocksShare = 128
	// maxMinBytes bounds it, in bytes. A few counters touch all of it, and the system takes
	// 0.5 to 2 ns to clear a byte.
	maxMinBytes = 4 << 20
)

// maxBlocks returns how many blocks a size class of p may have.
func (p *Partition) maxBlocks() uint64 {
	if n := p.slots.Load(); n > 0 {
		return max(2, (uint64(n)+ways-1)/ways)
	}
	return layoutCount
}

// shrinkToBound removes what p's size classes have beyond its bound.
func (p *Partition) shrinkToBound(now Time) {
	for s := range p.sizeClasses() {
		s.resizeMu.Lock()
		for s.inUse() > max(p.maxBlocks(), s.minBlocks) {
			if !s.mergeLocked(p.table, now, true) {
				runtime.Gosched() // to who writes one of the counters
				continue
			}
			p.table.freeBytes.Add(s.blockSize())
		}
		s.resizeMu.Unlock()
	}
}

// mayBeElsewhere reports whether a counter that belongs to p may be in another size class than
// its own.
func (p *Partition) mayBeElsewhere(a algorithm) bool { return a.resizes() || p.others.Load() != nil }

// hasClasses reports whether p has a size class.
func (p *Partition) hasClasses() bool {
	for range p.sizeClasses() {
		return true
	}
	return false
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
