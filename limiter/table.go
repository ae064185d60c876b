package limiter

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Options configures a [Table]. The zero value is usable.
type Options struct {
	// Bytes limits the memory of the counters: [MinBytes], 4 KiB, to [MaxBytes], 256 GiB, or 2 GiB
	// less one byte on 32-bit systems. 0 means 64 MiB. Each counter size in use may exceed the
	// limit by room for 16 counters.
	Bytes int64
	// Key is the secret key of the counter IDs. The table does not hash, but saves the key with a
	// snapshot, since the IDs are useless without it. The zero value selects a random key.
	Key identity.Key
}

// A Table stores counters. All methods may be called concurrently.
type Table struct {
	common Partition
	// pinned contains the counters of policies that are pinned.
	pinned Partition
	// horizon is the latest [Time] until which a reclaimed counter had counted. An absent counter
	// may have been reclaimed, so a new counter never starts before the horizon. It is raised
	// before a slot is taken, and read under the lock of the slot's stripe.
	horizon   atomic.Int64
	penalties penaltyFilter
	// moving serialises inserts of counters that may have a slot in another size class, so that a
	// counter is in only one. These locks are acquired before those of a size class, and classes of
	// smaller counters before those of larger ones.
	moving [stripes]moveLock

	key    identity.Key
	nonces nonceKey
	mirror bool // the table mirrors a store, so any valid lease releases a permit
	// saveMu serialises calls of Save.
	saveMu sync.Mutex

	// bytes is the memory limit, and freeBytes the part that no size class uses.
	bytes     int64
	freeBytes atomic.Int64
	// squeezeMu is held while a size class takes memory from others.
	squeezeMu sync.Mutex
	// reclaimed and evicted are the totals of removed partitions.
	reclaimed, evicted atomic.Uint64
	// growthMu guards the creation of size classes and partitions.
	growthMu   sync.Mutex
	partitions map[string]*Partition
}

// A moveLock is held while a counter is inserted that may be in another size class.
type moveLock struct {
	sync.Mutex
	// moves counts the counters that moved to another size class. It is incremented after a counter
	// is in the new class and before it leaves the old one, so a reader that found it in neither
	// class reads again.
	moves atomic.Uint64
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
	t := &Table{bytes: size, key: opt.Key, nonces: newNonceKey(), partitions: map[string]*Partition{}}
	if t.key == (identity.Key{}) {
		t.key = identity.NewKey()
	}
	t.common.table = t
	t.pinned.table = t
	t.pinned.slots.Store(maxPinned)
	t.horizon.Store(math.MinInt64)
	t.freeBytes.Store(size)
	return t, nil
}

// Key returns the secret key for hashing counter IDs, from [Options] or from the loaded snapshot.
func (t *Table) Key() identity.Key { return t.key }

const (
	// liveSample is the minimum number of slots that are read to count live counters, and the
	// minimum number of live counters for an estimate from a sample. Hashing spreads counters
	// evenly.
	liveSample = 1 << 18
	// liveSlots is the number of slots to read if the sample has fewer live counters.
	liveSlots = 1 << 23
)

// Stats contains the totals of a table.
type Stats struct {
	// Bytes is the memory limit of the counters, and Used the memory of the blocks in use.
	Bytes, Used int64
	// Reclaimed counts reused slots of expired counters.
	Reclaimed uint64
	// Evicted counts live counters that were dropped because memory was full.
	Evicted uint64
}

// ClassStats contains the totals of the counters of one size in one partition.
type ClassStats struct {
	// Partition is the name of the partition, empty for the common one. Pinned counters are left out.
	Partition string
	// CounterBytes is the memory of one counter.
	CounterBytes int
	// Live is the number of live counters.
	Live int64
	// Capacity is the possible number of counters if no other size class grew. In the common
	// partition it counts all memory without live counters; in others it is the bound of the
	// partition.
	Capacity int64
	// Evicted counts live counters that were dropped to make room for others.
	Evicted uint64
}

// Stats returns the totals so far.
func (t *Table) Stats() Stats {
	out := Stats{Bytes: t.bytes, Reclaimed: t.reclaimed.Load(), Evicted: t.evicted.Load()}
	for p := range t.allPartitions() {
		for s := range p.sizeClasses() {
			out.Used += s.bytes()
			out.Reclaimed += s.reclaimed.Load()
			out.Evicted += s.evicted.Load()
		}
	}
	return out
}

// Classes returns the totals of each size class at the time now. The classes of the common
// partition come first, always including the one of one-word counters. A call takes milliseconds
// and is meant for metrics, not for requests.
//
// Live is exact up to a quarter of a million live counters per class, unless the class is so large
// that only eight million slots are sampled. Above, it is an estimate with an error of about one
// percent.
func (t *Table) Classes(now Time) []ClassStats {
	t.common.class(&oneWordPolicy)
	var out []ClassStats
	free := t.bytes
	for p := range t.allPartitions() {
		for s := range p.sizeClasses() {
			if p == &t.pinned {
				free -= s.bytes()
				continue
			}
			c := ClassStats{
				Partition: p.name, CounterBytes: slotBytes(s.size),
				Live: s.countLive(now), Capacity: p.slots.Load(), Evicted: s.evicted.Load(),
			}
			free -= c.Live * int64(c.CounterBytes)
			out = append(out, c)
		}
	}
	for i := range out {
		if c := &out[i]; c.Capacity == 0 {
			c.Capacity = c.Live + max(0, free)/int64(c.CounterBytes)
		}
	}
	return out
}

// allPartitions returns the partitions, the common one first and then that of pinned counters.
func (t *Table) allPartitions() iter.Seq[*Partition] {
	t.growthMu.Lock()
	defer t.growthMu.Unlock()
	all := []*Partition{&t.common, &t.pinned}
	for _, name := range slices.Sorted(maps.Keys(t.partitions)) {
		all = append(all, t.partitions[name])
	}
	return slices.Values(all)
}

// oneWordPolicy is a policy whose counters have no cells.
var oneWordPolicy = Policy{Algorithm: FixedWindow}

// countLive returns the number of live counters. It samples large classes by blocks, since slots of
// a block are not used independently.
func (s *sizeClass) countLive(now Time) int64 {
	slots := s.inUse() * ways
	coarse := max(1, slots/liveSample)
	every := max(1, slots/liveSlots)
	live := s.sample(coarse, now)
	if every < coarse && live < liveSample {
		live = s.sample(every, now)
	}
	runtime.KeepAlive(s)
	return live
}

// sample estimates the number of live counters from every block whose number is a multiple of
// stride.
func (s *sizeClass) sample(stride uint64, at Time) int64 {
	n := int64(0)
	for i := uint64(0); i < s.inUse(); i += stride {
		for j := range uint64(ways) {
			index := i*ways + j
			tag := s.slotAt(index).tag.Load()
			word := s.slotAt(index).word.Load()
			if tag == 0 || word == dead {
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
