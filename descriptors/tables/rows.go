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

// Columns are the names of the key columns. They are compared by pointer.
type Columns []string

// Rows are the rows of a table. They may be read concurrently while [Table] changes single ones.
type Rows struct {
	columns *Columns
	hasher  identity.Hasher // hashes keys; contains no value yet
	shards  []atomic.Pointer[shard]
	// names are the names of rows. slot.name is an index in it, counted from 1; 0 is no name.
	names atomic.Pointer[[]string]
	n     atomic.Int64
	// burst is the key of the first row of a file with a burst.
	burst string
}

// A shard is immutable: a change of a row replaces the shard. It contains its slots, so that a
// look-up waits for memory only once.
type shard struct {
	n int
	// keys are the keys of the rows: for each key its length, and then each value after its length.
	keys  []byte
	_     [24]byte       // aligns slots, so that each is in a single cache line
	slots [perShard]slot // open addressing; some are always empty
}

const (
	// perShard makes a shard 12 KiB, including the 8 bytes that the allocator adds to objects with
	// pointers, so that no memory is wasted: see TestShardsFitTheAllocator.
	perShard = 382
	// meanRows is the mean number of rows in a shard when a table is built, growRows the mean at
	// which it gets more shards, and maxShardRows bounds one shard. Hashes are random: if shards
	// have meanRows on average, one in 2^30 reaches maxShardRows.
	meanRows, growRows, maxShardRows = 230, 290, 350
)

// A slot is a row, or empty.
type slot struct {
	id            identity.ID
	number, burst uint32
	key           uint32 // offset in keys
	name          uint16
	unit          uint8
	flags         uint8
}

const (
	isUsed      = 1
	isUnlimited = 2
	isDeleted   = 4 // only while a journal is read
)

// slotOf returns a row with a hash and the index of its name, without a key.
func slotOf(id identity.ID, row Row, name uint16) slot {
	s := slot{id: id, number: row.RequestsPerUnit, burst: row.Burst, name: name, unit: uint8(row.Unit), flags: isUsed} //nolint:gosec // a unit is small
	if row.Unlimited {
		s.flags |= isUnlimited
	}
	return s
}

// A Hit is a row from [Rows.Find]. It does not allocate.
type Hit struct {
	RequestsPerUnit, Burst uint32
	Unit                   rules.Unit
	Unlimited              bool
	name                   uint16
}

// Columns returns the names of the key columns, nil if the table never had a row.
func (r *Rows) Columns() *Columns { return r.columns }

// Burst returns the key of the first row with a burst, or "". It is not known for a table that is
// changed row by row.
func (r *Rows) Burst() string { return r.burst }

// Len returns the number of rows.
func (r *Rows) Len() int { return int(r.n.Load()) }

// Hasher returns a hasher for keys. Add the value of each column at its index.
func (r *Rows) Hasher() identity.Hasher { return r.hasher }

// Find returns the row with the hash of a key. It allocates nothing.
func (r *Rows) Find(id identity.ID) (Hit, bool) {
	s := r.shards[r.shardOf(id)].Load().find(id)
	if s == nil {
		return Hit{}, false
	}
	return s.hit(), true
}

func (s *slot) hit() Hit {
	return Hit{s.number, s.burst, rules.Unit(s.unit), s.flags&isUnlimited != 0, s.name}
}

// NameOf returns the name of a row, or "".
func (r *Rows) NameOf(h Hit) string {
	if h.name == 0 {
		return ""
	}
	return (*r.names.Load())[h.name-1]
}

// Row returns a hit as a row.
func (r *Rows) Row(h Hit) Row {
	return Row{
		RequestsPerUnit: h.RequestsPerUnit, Unit: h.Unit, Burst: h.Burst, Unlimited: h.Unlimited, Name: r.NameOf(h),
	}
}

// Get returns the row with the given values of the key columns.
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
				if t := &s.slots[j]; t.flags&isUsed != 0 && !yield(s.values(t), r.Row(t.hit())) {
					return
				}
			}
		}
	}
}

// shardOf returns the index of the shard of a hash.
func (r *Rows) shardOf(id identity.ID) uint64 {
	hi, _ := bits.Mul64(id.Hi, uint64(len(r.shards)))
	return hi
}

// homeIndex returns the slot at which the search for a hash begins.
func homeIndex(id identity.ID) uint64 {
	hi, _ := bits.Mul64(id.Lo, perShard)
	return hi
}

// find returns the slot of a hash, or nil.
func (s *shard) find(id identity.ID) *slot {
	for i := homeIndex(id); ; i = 0 {
		for ; i < perShard; i++ {
			t := &s.slots[i]
			switch {
			case t.id == id && t.flags&isUsed != 0:
				return t
			case t.flags&isUsed == 0:
				return nil
			}
		}
	}
}

// values returns the key of a slot.
func (s *shard) values(t *slot) []string {
	key := payloadReader{b: s.keyOf(t)}
	return key.readValues(nil)
}

// keyOf returns the key of a slot as appendKey wrote it.
func (s *shard) keyOf(t *slot) []byte {
	n, size := binary.Uvarint(s.keys[t.key:])
	return s.keys[int(t.key)+size:][:n]
}

// appendKey appends a key: each value after its length.
func appendKey(dst []byte, values []string) []byte {
	for _, v := range values {
		dst = append(binary.AppendUvarint(dst, uint64(len(v))), v...)
	}
	return dst
}

// insert adds a row to a shard that no other goroutine uses. If the shard has a row with that hash,
// insert returns it and adds nothing.
func (s *shard) insert(t slot, key []byte) *slot {
	i := homeIndex(t.id)
	for ; s.slots[i].flags&isUsed != 0; i = (i + 1) % perShard {
		if s.slots[i].id == t.id {
			return &s.slots[i]
		}
	}
	t.key = uint32(len(s.keys)) //nolint:gosec // at most maxShardRows of MaxColumns values of MaxValueBytes
	s.keys = append(binary.AppendUvarint(s.keys, uint64(len(key))), key...)
	s.slots[i] = t
	s.n++
	return nil
}

// with returns a copy of the shard with a row added or replaced.
func (s *shard) with(t slot, key []byte) *shard {
	next := *s
	next.keys = append(make([]byte, 0, len(s.keys)+binary.MaxVarintLen16+len(key)), s.keys...)
	if old := next.insert(t, key); old != nil {
		t.key = old.key
		*old = t
	}
	return &next
}

// without returns a copy of the shard without the rows for which remove returns true.
func (s *shard) without(remove func(*slot) bool) *shard {
	next := &shard{keys: make([]byte, 0, len(s.keys))}
	for i := range s.slots {
		if t := &s.slots[i]; t.flags&isUsed != 0 && !remove(t) {
			next.insert(*t, s.keyOf(t))
		}
	}
	return next
}

// newRows returns an empty table with the given number of shards.
func newRows(columns *Columns, hasher identity.Hasher, shards int, names []string) *Rows {
	r := &Rows{columns: columns, hasher: hasher, shards: make([]atomic.Pointer[shard], shards)}
	empty := new(shard)
	for i := range r.shards {
		r.shards[i].Store(empty)
	}
	r.names.Store(&names)
	return r
}

// grown returns the rows with a quarter more shards, so that they have about meanRows again. Shards
// are allocated separately, so that they can be freed separately.
func (r *Rows) grown() *Rows {
	next := newRows(r.columns, r.hasher, len(r.shards)+len(r.shards)/4+1, *r.names.Load())
	all := make([]*shard, len(next.shards))
	for i := range all {
		all[i] = new(shard)
	}
	for i := range r.shards {
		s := r.shards[i].Load()
		for j := range s.slots {
			if t := &s.slots[j]; t.flags&isUsed != 0 {
				all[next.shardOf(t.id)].insert(*t, s.keyOf(t))
			}
		}
	}
	for i, s := range all {
		s.keys = slices.Clone(s.keys) // drops spare capacity
		next.shards[i].Store(s)
	}
	next.n.Store(r.n.Load())
	return next
}

// nameIndex returns the index of a name, and adds it if necessary. ok is false if there are too
// many.
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

// dropNames removes names that no row has, and reports whether it removed any.
func (r *Rows) dropNames() (some bool) {
	names := slices.Clone(*r.names.Load())
	used := make([]bool, len(names)+1)
	for i := range r.shards {
		s := r.shards[i].Load()
		for j := range s.slots {
			used[s.slots[j].name] = true // 0 for empty slots
		}
	}
	for i := range names {
		if !used[i+1] && names[i] != "" {
			names[i] = ""
			some = true
		}
	}
	r.names.Store(&names)
	return some
}
