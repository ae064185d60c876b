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
	// Bytes bounds the memory of the counters. 0 means 64 MiB; the least is [MinBytes],
	// 4 KiB, the most [MaxBytes], 256 GiB, or 2 GiB less a byte on 32-bit systems. Every
	// size of counter that is in use has room for 16 beyond the bound, if need be.
	Bytes int64
	// Key is the secret that the IDs of the counters are hashed with. Nothing here hashes,
	// but a snapshot is of use only with its key. The zero value means a random one.
	Key identity.Key
	// RestoreLeases has [Load] restore what requests held under leases when the snapshot was made, their places and
	// reservations. Those that have ended since then hold it until it is free by itself. Without it all of it is free.
	RestoreLeases bool
}

// Table holds the counters. All methods may be called concurrently.
type Table struct {
	common Partition
	// horizon is the latest time, as a Time, until which a counter that was
	// reclaimed had counted. A counter that is absent may have been one of those,
	// so a new one never starts before it. Raised before the slot is taken, read
	// under the lock of the stripe that the slot belonged to.
	horizon   atomic.Int64
	penalties remembered
	// moving serialise the inserts of counters that may have a slot in another size class,
	// so that each is in one only. They come before the locks of a size class, and size
	// classes of smaller counters before those of larger ones.
	moving [stripes]moveLock

	key    identity.Key
	nonces nonceKey
	mirror bool // see Mirror
	// saves is held while the counters are saved.
	saves sync.Mutex

	// bytes bounds the memory, and spare is what no size class has.
	bytes int64
	spare atomic.Int64
	// squeezing is held while a size class takes memory from donors, which are those
	// that must give some.
	squeezing sync.Mutex
	donors    atomic.Pointer[[]*sizeClass]
	// reclaimed and evicted are the totals of size classes that are gone.
	reclaimed, evicted atomic.Uint64
	// growth is held while size classes and partitions are made.
	growth     sync.Mutex
	classes    uint64 // how many have been made
	partitions map[string]*Partition
}

// A moveLock is held while a counter is inserted that may be in another size class, of the
// same partition or another.
type moveLock struct {
	sync.Mutex
	// moves counts the counters that have moved to another size class. It grows when one is in
	// the new and not yet gone from the old, so a reader that has found it in neither
	// reads again.
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
	t.horizon.Store(math.MinInt64)
	t.spare.Store(size)
	t.donors.Store(&[]*sizeClass{})
	return t, nil
}

// Key returns the secret that the IDs of the counters are to be hashed with: that of
// [Options], or of the snapshot that the table was loaded from.
func (t *Table) Key() identity.Key { return t.key }

const (
	// liveSample is how many slots of a size class are read at least to count the live
	// counters, and how many of these it takes to stand for all: hashing spreads counters
	// evenly.
	liveSample = 1 << 18
	// liveSlots is how many slots are read where there are fewer.
	liveSlots = 1 << 23
)

// Stats are a table's totals.
type Stats struct {
	// Bytes bounds the memory of the counters, and Used is what they have.
	Bytes, Used int64
	// Reclaimed counts the slots of expired counters that were used again.
	Reclaimed uint64
	// Evicted counts the live counters that were dropped because memory was full.
	Evicted uint64
}

// ClassStats are the totals of the counters of one size in one partition.
type ClassStats struct {
	// Partition is the partition's name, empty for the common one.
	Partition string
	// CounterBytes is the memory of a counter.
	CounterBytes int
	// Live is how many counters a decision could still see.
	Live int64
	// Capacity is how many there could be if no other size class got more counters: in
	// the common partition all memory that has no live counters counts, in others the
	// bound of the partition.
	Capacity int64
	// Evicted counts the live counters that were dropped to make room for others.
	Evicted uint64
}

// Stats returns the totals so far.
func (t *Table) Stats() Stats {
	out := Stats{Bytes: t.bytes, Reclaimed: t.reclaimed.Load(), Evicted: t.evicted.Load()}
	for p := range t.all() {
		for s := range p.all() {
			out.Used += s.bytes()
			out.Reclaimed += s.reclaimed.Load()
			out.Evicted += s.evicted.Load()
		}
	}
	return out
}

// Classes returns the totals of each size class at the time now. Those of the common partition come
// first, and the class of one-word counters is always there. A call takes milliseconds, so it is for metrics,
// not for requests.
//
// Live is an estimate, to about a percent, in a size class with more than a quarter of a million live
// counters. Fewer are counted: exactly, or by eight million slots in a size class that has more.
func (t *Table) Classes(now Time) []ClassStats {
	t.common.class(&oneWordPolicy)
	var out []ClassStats
	free := t.bytes
	for p := range t.all() {
		for s := range p.all() {
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

// Live returns how many counters are live; see [Table.Classes].
func (t *Table) Live(now Time) int64 {
	n := int64(0)
	for p := range t.all() {
		n += p.live(now)
	}
	return n
}

// all returns the partitions, the common one first.
func (t *Table) all() iter.Seq[*Partition] {
	t.growth.Lock()
	defer t.growth.Unlock()
	all := []*Partition{&t.common}
	for _, name := range slices.Sorted(maps.Keys(t.partitions)) {
		all = append(all, t.partitions[name])
	}
	return slices.Values(all)
}

// oneWordPolicy is a policy whose counters have no cells.
var oneWordPolicy = Policy{Algorithm: FixedWindow}

// live returns how many counters of p are live.
func (p *Partition) live(now Time) int64 {
	n := int64(0)
	for s := range p.all() {
		n += s.countLive(now)
	}
	return n
}

// countLive returns how many counters are live. Where there are many, it reads some
// blocks: whole ones, since their slots are not taken independently.
func (s *sizeClass) countLive(now Time) int64 {
	slots := s.inUse() * ways
	coarse, every := max(1, slots/liveSample), max(1, slots/liveSlots)
	live := s.sample(coarse, now)
	if every < coarse && live < liveSample {
		live = s.sample(every, now)
	}
	runtime.KeepAlive(s)
	return live
}

// sample estimates the live counters from one block in stride.
func (s *sizeClass) sample(stride uint64, at Time) int64 {
	n := int64(0)
	for i := uint64(0); i < s.inUse(); i += stride {
		for j := range uint64(ways) {
			index := i*ways + j
			tag, word := s.at(index).tag.Load(), s.at(index).word.Load()
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
