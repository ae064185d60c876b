package limiter

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// Bounds and default of [Options.Bytes].
const (
	minBytes     = 4 << 10
	defaultBytes = 64 << 20
	maxBytes     = 256 << 30 // so that a bucket's number stays below 2^32
)

// Options configures a [Table]. The zero value is usable.
type Options struct {
	// Bytes bounds the memory of the counters. 0 means 64 MiB; the least is 4 KiB,
	// the most 256 GiB.
	Bytes int64
}

// Stats are a table's totals.
type Stats struct {
	// Capacity is how many one-word counters fit.
	Capacity int64
	// Bytes is the memory that the counters may take; all of it is reserved.
	Bytes int64
	// Reclaimed counts the slots of expired counters that were used again.
	Reclaimed uint64
	// GivenUp counts the live counters that were forgotten for want of room.
	GivenUp uint64
}

const (
	ways        = 8
	bucketBytes = ways * 16
	stripes     = 256
)

// A slot holds one counter.
type slot struct {
	// tag says whose counter it is and how to read word; see tagOf. 0 is a slot
	// never used. It is written only under the lock of the bucket's stripe.
	tag atomic.Uint64
	// word is the counter, or dead while the slot changes hands.
	word atomic.Uint64
}

// A bucket is two cache lines. Larger blocks of memory are aligned to pages, so a
// bucket never straddles a third line; a test holds this.
type bucket [ways]slot

// Table holds the counters. All methods may be called concurrently.
type Table struct {
	// buckets has no pointers, so the garbage collector never walks it.
	buckets []bucket
	// horizon is the latest time, as a Time, at which a counter was reclaimed. A
	// counter that is absent may have been one of those, so a new one never
	// starts before it. Raised before the slot is taken, read under the lock of
	// the stripe that the slot belonged to.
	horizon atomic.Int64
	// reclaimed and givenUp are the totals of Stats.
	reclaimed, givenUp atomic.Uint64
	// locks serialise those who want a slot for a new counter, so that a counter
	// never gets two slots. Bucket i belongs to lock i mod stripes; two are
	// locked in ascending order. Counters that have a slot need no lock.
	locks [stripes]sync.Mutex
}

// New returns an empty table. It returns an error if opt.Bytes is out of range.
func New(opt Options) (*Table, error) {
	size := opt.Bytes
	if size == 0 {
		size = defaultBytes
	}
	if size < minBytes || size > maxBytes {
		return nil, fmt.Errorf("counter memory of %d bytes: must be %d to %d", size, minBytes, maxBytes)
	}
	t := &Table{buckets: make([]bucket, size/bucketBytes)}
	t.horizon.Store(math.MinInt64)
	return t, nil
}

// Stats returns the totals so far.
func (t *Table) Stats() Stats {
	n := int64(len(t.buckets))
	return Stats{
		Capacity:  n * ways,
		Bytes:     n * bucketBytes,
		Reclaimed: t.reclaimed.Load(),
		GivenUp:   t.givenUp.Load(),
	}
}

// Live counts the counters that a decision at now could still see. It walks the
// whole table, so it is for metrics, not for requests.
func (t *Table) Live(now Time) int64 {
	at, n := instantOf(now), int64(0)
	for i := range t.buckets {
		for j := range t.buckets[i] {
			s := &t.buckets[i][j]
			tag, word := s.tag.Load(), s.word.Load()
			if used, _, live := state(tag, word, at); live && used > 0 && word != dead {
				n++
			}
		}
	}
	return n
}
