package tables

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Columns are the names of the key columns. Tables of the same columns share them.
type Columns []string

// Rows are the rows of a table. Any number of goroutines may read them while [Table] changes single ones.
type Rows struct {
	columns *Columns
	hasher  identity.Hasher // without any value
	shards  []atomic.Pointer[shard]
	// names are those of rows; a row has the place of its own, from 1.
	names atomic.Pointer[[]string]
	n     atomic.Int64
}

// A shard is immutable: a row is changed by a copy of its shard. Its slots are in it, so that a look-up waits for memory but once.
type shard struct {
	n int
	// keys have the values of the key columns, each behind its length.
	keys  []byte
	_     [24]byte       // so that each slot lies in one line of the cache
	slots [perShard]slot // open addressing; always with empty ones
}

const (
	// perShard makes a shard, with the 8 bytes that the allocator puts before what has pointers, 12 KiB, of which it wastes nothing: see
	// TestShardsFitTheAllocator.
	perShard = 382
	// meanRows is how many rows shards have when a table is built, manyRows how many when it gets more shards, and mostRows how many one
	// may have. Hashes are random, so that one of 2^30 shards of meanRows has mostRows.
	meanRows, manyRows, mostRows = 230, 290, 350
)

// A slot is a row, or empty.
type slot struct {
	id            identity.ID
	number, burst uint32
	key           uint32 // in keys
	name          uint16
	unit          uint8
	is            uint8
}

const (
	isTaken     = 1
	isUnlimited = 2
	isDeleted   = 4 // while a journal is read
)

// A Hit is a row as [Rows.Find] has it, without memory of its own.
type Hit struct {
	RequestsPerUnit, Burst uint32
	Unit                   rules.Unit
	Unlimited              bool
	name                   uint16
}

// Columns returns the names of the key columns, nil for a table that has had no row yet.
func (r *Rows) Columns() *Columns { return r.columns }

// Len returns how many rows there are.
func (r *Rows) Len() int { return int(r.n.Load()) }

// Hasher returns the hash of a key to which no value was put yet. Each column's goes to its place.
func (r *Rows) Hasher() identity.Hasher { return r.hasher }

// Find returns the row of a key by its hash. It allocates nothing.
func (r *Rows) Find(id identity.ID) (Hit, bool) {
	s := r.shards[r.shardOf(id)].Load().find(id)
	if s == nil {
		return Hit{}, false
	}
	return Hit{s.number, s.burst, rules.Unit(s.unit), s.is&isUnlimited != 0, s.name}, true
}

// NameOf returns the name of a row, empty if it has none.
func (r *Rows) NameOf(h Hit) string {
	if h.name == 0 {
		return ""
	}
	return (*r.names.Load())[h.name-1]
}

// Row returns a hit as a row.
func (r *Rows) Row(h Hit) Row {
	return Row{RequestsPerUnit: h.RequestsPerUnit, Unit: h.Unit, Burst: h.Burst, Unlimited: h.Unlimited, Name: r.NameOf(h)}
}

// Get returns the row of the values of the key columns.
func (r *Rows) Get(values []string) (Row, bool) {
	if r.columns == nil || len(values) != len(*r.columns) {
		return Row{}, false
	}
	hit, ok := r.Find(r.idOf(values))
	return r.Row(hit), ok
}

func (r *Rows) idOf(values []string) identity.ID {
	h := r.hasher
	for i, v := range values {
		h.AddBytesAt(i, []byte(v))
	}
	return h.Sum()
}

// All yields all rows with the values of their key columns, in no order.
func (r *Rows) All() iter.Seq2[[]string, Row] {
	return func(yield func([]string, Row) bool) {
		for i := range r.shards {
			s := r.shards[i].Load()
			for j := range s.slots {
				if t := &s.slots[j]; t.is&isTaken != 0 && !yield(s.values(t), r.rowOf(t)) {
					return
				}
			}
		}
	}
}

func (r *Rows) rowOf(t *slot) Row {
	return r.Row(Hit{t.number, t.burst, rules.Unit(t.unit), t.is&isUnlimited != 0, t.name})
}

// shardOf returns the number of a hash's shard.
func (r *Rows) shardOf(id identity.ID) uint64 {
	hi, _ := bits.Mul64(id.Hi, uint64(len(r.shards)))
	return hi
}

// home is where a hash would be in a shard.
func home(id identity.ID) uint64 {
	hi, _ := bits.Mul64(id.Lo, perShard)
	return hi
}

// find returns the slot of a hash, or nil.
func (s *shard) find(id identity.ID) *slot {
	for i := home(id); ; i = 0 {
		for ; i < perShard; i++ {
			t := &s.slots[i]
			switch {
			case t.id == id && t.is&isTaken != 0:
				return t
			case t.is&isTaken == 0:
				return nil
			}
		}
	}
}

// values returns the key of a slot.
func (s *shard) values(t *slot) []string {
	var values []string
	for b := s.keyOf(t); len(b) > 0; {
		n, size := binary.Uvarint(b)
		values = append(values, string(b[size:size+int(n)])) //nolint:gosec // written by appendKey
		b = b[size+int(n):]                                  //nolint:gosec // see above
	}
	return values
}

// keyOf returns the key of a slot as appendKey wrote it.
func (s *shard) keyOf(t *slot) []byte {
	n, size := binary.Uvarint(s.keys[t.key:])
	return s.keys[int(t.key)+size:][:n]
}

// appendKey appends a key: each value behind its length.
func appendKey(dst []byte, values []string) []byte {
	for _, v := range values {
		dst = append(binary.AppendUvarint(dst, uint64(len(v))), v...)
	}
	return dst
}

// insert adds a row to a shard that nobody else has yet. It returns the row of that hash that is there already, and adds nothing then.
func (s *shard) insert(t slot, key []byte) *slot {
	i := home(t.id)
	for ; s.slots[i].is&isTaken != 0; i = (i + 1) % perShard {
		if s.slots[i].id == t.id {
			return &s.slots[i]
		}
	}
	t.key = uint32(len(s.keys)) //nolint:gosec // at most mostRows of MaxColumns values of MaxValueBytes
	s.keys = append(binary.AppendUvarint(s.keys, uint64(len(key))), key...)
	s.slots[i], s.n = t, s.n+1
	return nil
}

// with returns the shard with a row, which may replace another of the same key.
func (s *shard) with(t slot, key []byte) *shard {
	next := *s
	next.keys = append(make([]byte, 0, len(s.keys)+binary.MaxVarintLen16+len(key)), s.keys...)
	if was := next.insert(t, key); was != nil {
		t.key = was.key
		*was = t
	}
	return &next
}

// without returns the shard without some rows.
func (s *shard) without(some func(*slot) bool) *shard {
	next := &shard{keys: make([]byte, 0, len(s.keys))}
	for i := range s.slots {
		if t := &s.slots[i]; t.is&isTaken != 0 && !some(t) {
			next.insert(*t, s.keyOf(t))
		}
	}
	return next
}

// newRows returns empty rows in so many shards.
func newRows(columns *Columns, hasher identity.Hasher, shards int, names []string) *Rows {
	r := &Rows{columns: columns, hasher: hasher, shards: make([]atomic.Pointer[shard], shards)}
	empty := new(shard)
	for i := range r.shards {
		r.shards[i].Store(empty)
	}
	r.names.Store(&names)
	return r
}

// grown returns the rows in a quarter more shards, so that these have about meanRows again. Each shard is in memory of its own, which is
// free once the shard is replaced.
func (r *Rows) grown() *Rows {
	next := newRows(r.columns, r.hasher, len(r.shards)+len(r.shards)/4+1, *r.names.Load())
	all := make([]*shard, len(next.shards))
	for i := range all {
		all[i] = new(shard)
	}
	for i := range r.shards {
		s := r.shards[i].Load()
		for j := range s.slots {
			if t := &s.slots[j]; t.is&isTaken != 0 {
				all[next.shardOf(t.id)].insert(*t, s.keyOf(t))
			}
		}
	}
	for i, s := range all {
		s.keys = slices.Clone(s.keys) // without what it has grown by
		next.shards[i].Store(s)
	}
	next.n.Store(r.n.Load())
	return next
}

// nameIndex returns the place of a name, which it adds. Ok is false if there are too many.
func (r *Rows) nameIndex(name string) (i uint16, ok bool) {
	if name == "" {
		return 0, true
	}
	names := *r.names.Load()
	at := slices.Index(names, name)
	if at >= 0 {
		return uint16(at + 1), true //nolint:gosec // at most MaxNames
	}
	names = slices.Clone(names)
	if at = slices.Index(names, ""); at >= 0 {
		names[at] = name
	} else if at = len(names); at >= MaxNames {
		return 0, false
	} else {
		names = append(names, name)
	}
	r.names.Store(&names)
	return uint16(at + 1), true //nolint:gosec // at most MaxNames
}

// dropNames makes room for other names where no row has one any more. It reports whether there was any such.
func (r *Rows) dropNames() (some bool) {
	names := slices.Clone(*r.names.Load())
	used := make([]bool, len(names)+1)
	for i := range r.shards {
		s := r.shards[i].Load()
		for j := range s.slots {
			used[s.slots[j].name] = true // 0 of those that are empty
		}
	}
	for i := range names {
		if !used[i+1] && names[i] != "" {
			names[i], some = "", true
		}
	}
	r.names.Store(&names)
	return some
}
