package limiter

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// Bounds and default of [Options.Bytes].
const (
	MinBytes     = 4 << 10
	defaultBytes = 64 << 20
	// MaxBytes keeps a block's number below 2^32, and lets an int count bytes, which
	// 32-bit systems have fewer of.
	MaxBytes int64 = min(256<<30, math.MaxInt)
)

// Options configures a [Table]. The zero value is usable.
type Options struct {
	// Bytes bounds the memory of the counters. 0 means 64 MiB; the least is [MinBytes],
	// 4 KiB, the most [MaxBytes], 256 GiB, or 2 GiB less a byte on 32-bit systems.
	Bytes int64
	// Policies are those that the table is to be divided for: every one gets the
	// same share, those with counters of one size together. An eighth is kept for
	// sizes that come later and for partitions, and a little for counters of one word
	// if no policy has those. No policies means that all are of one word.
	Policies []Policy
	// Partitions are the bounds of the partitions to come (see [Table.Partition]), for which
	// memory is kept beside that eighth. They may take half of Bytes.
	Partitions []int64
}

// Stats are a table's totals.
type Stats struct {
	// Capacity is how many counters fit, of all sizes.
	Capacity int64
	// Bytes is the memory that the counters may take. It is bounded by
	// Options.Bytes, but that every size that is in use has room for 16 counters.
	Bytes int64
	// Mapped is how much of it is not in Go's heap.
	Mapped int64
	// Reclaimed counts the slots of expired counters that were used again.
	Reclaimed uint64
	// Evicted counts the live counters that were dropped because memory was full.
	Evicted uint64
}

// Table holds the counters. All methods may be called concurrently.
type Table struct {
	common Partition
	// horizon is the latest time, as a Time, until which a counter that was
	// reclaimed had counted. A counter that is absent may have been one of those,
	// so a new one never starts before it. Raised before the slot is taken, read
	// under the lock of the stripe that the slot belonged to.
	horizon atomic.Int64
	// reclaimed and evicted are the totals of Stats.
	reclaimed, evicted atomic.Uint64
	// logs serialise the inserts of logs, so that each is in one size class only,
	// whatever its limits. They come before the locks of a size class, and size classes of
	// smaller counters before those of larger ones.
	logs [stripes]moveLock

	// bytes bounds the memory.
	bytes int64
	// growth is held while size classes and partitions are made.
	growth     sync.Mutex
	spare      int64 // bytes that no size class has
	partitions map[string]*Partition
}

// New returns an empty table. It returns an error if opt.Bytes is out of range.
func New(opt Options) (*Table, error) {
	size := opt.Bytes
	if size == 0 {
		size = defaultBytes
	}
	if size < MinBytes || size > MaxBytes {
		return nil, fmt.Errorf("counter memory of %d bytes: must be %d to %d", size, MinBytes, MaxBytes)
	}
	t := &Table{bytes: size}
	t.common.table = t
	t.horizon.Store(math.MinInt64)
	if err := t.Divide(opt.Policies, opt.Partitions); err != nil {
		return nil, err
	}
	return t, nil
}

// Divide divides the table anew, as [New] does for Options of the same Policies and
// Partitions, for a process that has the table before it knows what will be counted.
// All counters are forgotten. It must not be called once a batch with charges has
// been given to [Table.Decide]; other methods may run meanwhile. An error leaves the
// table as it is.
func (t *Table) Divide(policies []Policy, partitions []int64) error {
	t.growth.Lock()
	defer t.growth.Unlock()
	size := t.bytes
	kept := size / reserveShare
	for _, n := range partitions {
		kept += min(max(0, n), size) * int64(slotBytes(0))
		if kept > size/2 {
			return fmt.Errorf("counter memory of %d bytes: too little for partitions of %v counters, which take 16 bytes each and may take three eighths of it", size, partitions)
		}
	}
	var kinds [len(sizes)]int64
	for i := range policies {
		kinds[policies[i].class()]++
	}
	left := size - kept
	shares := [len(sizes)]int64{}
	for c, n := range kinds {
		if n > 0 {
			shares[c] = left / int64(len(policies)) * n
		}
	}
	if kinds[0] == 0 { // overrides may need them yet
		shares[0] = left / 16
		for c := 1; c < len(shares); c++ {
			shares[c] -= shares[c] / 16
		}
	}
	if len(policies) == 0 {
		shares[0] = left
	}
	t.spare, t.partitions = size, nil
	for c, share := range shares {
		var sc *sizeClass
		if share > 0 {
			sc = newSizeClass(sizes[c], max(2, share/int64(slotBytes(sizes[c]))/ways))
			t.spare -= sc.bytes()
		}
		t.common.classes[c].Store(sc)
	}
	return nil
}

// Stats returns the totals so far.
func (t *Table) Stats() Stats {
	s := Stats{Reclaimed: t.reclaimed.Load(), Evicted: t.evicted.Load()}
	t.growth.Lock()
	defer t.growth.Unlock()
	t.eachLocked(func(sc *sizeClass) {
		s.Capacity += int64(len(sc.blocks)) * ways
		s.Bytes += sc.bytes()
		s.Mapped += sc.mapped
	})
	s.Bytes += max(0, t.spare)
	return s
}

const (
	// liveSample is how many slots of a size class Live reads at least, and how many
	// counters it takes for these to stand for all: hashing spreads counters evenly.
	liveSample = 1 << 18
	// liveSlots is how many slots it reads where there are fewer.
	liveSlots = 1 << 23
)

// Live counts the counters that a decision at now could still see: to about a percent
// in size classes with more than a quarter of a million of them, else exactly up to eight
// million slots and from so many of them beyond. It takes milliseconds, so it is for
// metrics, not for requests.
func (t *Table) Live(now Time) int64 {
	n := int64(0)
	var classes []*sizeClass
	t.growth.Lock()
	t.eachLocked(func(sc *sizeClass) { classes = append(classes, sc) })
	t.growth.Unlock()
	for _, sc := range classes {
		// Whole blocks: their slots are not taken independently.
		slots := uint64(len(sc.blocks)) * ways
		coarse, every := max(1, slots/liveSample), max(1, slots/liveSlots)
		live := sc.live(coarse, now)
		if every < coarse && live < liveSample {
			live = sc.live(every, now)
		}
		n += live
		runtime.KeepAlive(sc)
	}
	return n
}

// live estimates the live counters from one block in stride.
func (s *sizeClass) live(stride uint64, at Time) int64 {
	n := int64(0)
	for i := uint64(0); i < uint64(len(s.blocks)); i += stride {
		b := &s.blocks[i]
		for j := range b {
			tag := b[j].tag.Load()
			if tag == 0 || tag == closed {
				continue
			}
			word, index := b[j].word.Load(), i*ways+uint64(j)
			if word == dead {
				continue
			}
			a := algorithmOf(tag)
			if _, live := a.expiry(s, index, word, at); live && a.weight(s, index, word) > 0 {
				n++
			}
		}
	}
	return n * int64(stride) //nolint:gosec // at most the number of slots
}

// eachLocked calls f for all size classes. The growth lock is held.
func (t *Table) eachLocked(f func(*sizeClass)) {
	of := func(s *Partition) {
		for c := range s.classes {
			if sc := s.classes[c].Load(); sc != nil {
				f(sc)
			}
		}
	}
	of(&t.common)
	for _, s := range t.partitions {
		of(s)
	}
}
