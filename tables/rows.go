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
	// shift makes a shard's number of the high bits of a hash.
	shift  uint8
	shards []atomic.Pointer[shard]
	// names are those of rows; a row has the place of its own, from 1.
	names atomic.Pointer[[]string]
	n     atomic.Int64
}

// A shard is immutable: a row is changed by a copy of its shard.
type shard struct {
	slots []slot // open addressing; always with an empty one
	n     int
	// keys have the values of the key columns, each behind its length.
	keys []byte
}

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
)

// perShard is how many rows a shard has when a table is built: what changing one row copies.
const perShard = 256

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
	s := r.shards[id.Hi>>r.shift].Load().find(id)
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
		h.BytesAt(i, []byte(v))
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

// find returns the slot of a hash, or nil.
func (s *shard) find(id identity.ID) *slot {
	for i := home(id, len(s.slots)); ; {
		t := &s.slots[i]
		switch {
		case t.is&isTaken == 0:
			return nil
		case t.id == id:
			return t
		}
		if i++; i == len(s.slots) {
			i = 0
		}
	}
}

// home is where a hash would be in so many slots.
func home(id identity.ID, slots int) int {
	hi, _ := bits.Mul64(id.Lo, uint64(slots)) //nolint:gosec // not negative
	return int(hi)                            //nolint:gosec // below slots
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

// newShard returns a shard with room for n rows, whose keys take so many bytes.
func newShard(n, keyBytes int) *shard {
	return &shard{slots: make([]slot, n+n/3+1), keys: make([]byte, 0, keyBytes)}
}

// insert adds a row with the key of another shard's or builder's memory. It returns the row of that hash that is there
// already, and adds nothing then.
func (s *shard) insert(t slot, key []byte) *slot {
	i := home(t.id, len(s.slots))
	for ; s.slots[i].is&isTaken != 0; i = (i + 1) % len(s.slots) {
		if s.slots[i].id == t.id {
			return &s.slots[i]
		}
	}
	t.key = uint32(len(s.keys)) //nolint:gosec // a shard's keys are bounded by its rows
	s.keys = append(binary.AppendUvarint(s.keys, uint64(len(key))), key...)
	s.slots[i], s.n = t, s.n+1
	return nil
}

// with returns the shard with a row, which may replace another of the same key.
func (s *shard) with(t slot, key []byte) *shard {
	next := newShard(s.n+1, len(s.keys)+len(key)+3)
	next.insert(t, key)
	s.copyTo(next, t.id)
	return next
}

// without returns the shard without a row.
func (s *shard) without(id identity.ID) *shard {
	next := newShard(s.n, len(s.keys))
	s.copyTo(next, id)
	return next
}

func (s *shard) copyTo(next *shard, but identity.ID) {
	for i := range s.slots {
		if t := &s.slots[i]; t.is&isTaken != 0 && t.id != but {
			next.insert(*t, s.keyOf(t))
		}
	}
}

// newRows returns empty rows with shards for n.
func newRows(columns *Columns, hasher identity.Hasher, n int, names []string) *Rows {
	log := bits.Len(uint(n / perShard))                                                                                 //nolint:gosec // not negative
	r := &Rows{columns: columns, hasher: hasher, shift: uint8(64 - log), shards: make([]atomic.Pointer[shard], 1<<log)} //nolint:gosec // at most 64
	empty := newShard(0, 0)
	for i := range r.shards {
		r.shards[i].Store(empty)
	}
	r.names.Store(&names)
	return r
}

// grown returns the rows in more shards.
func (r *Rows) grown() *Rows {
	next := newRows(r.columns, r.hasher, 4*r.Len(), *r.names.Load())
	per := make([]*shard, len(next.shards))
	for i := range r.shards {
		s := r.shards[i].Load()
		for j := range s.slots {
			t := &s.slots[j]
			if t.is&isTaken == 0 {
				continue
			}
			to := &per[t.id.Hi>>next.shift]
			if *to == nil {
				*to = newShard(perShard, 0)
			}
			if (*to).n*4 >= len((*to).slots)*3 {
				old := *to
				*to = newShard(2*old.n, 2*len(old.keys))
				old.copyTo(*to, identity.ID{})
			}
			(*to).insert(*t, s.keyOf(t))
		}
	}
	for i, s := range per {
		if s != nil {
			next.shards[i].Store(s)
		}
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
	if i := slices.Index(names, name); i >= 0 {
		return uint16(i + 1), true //nolint:gosec // at most MaxNames
	}
	if len(names) >= MaxNames {
		return 0, false
	}
	names = append(slices.Clip(names), name)
	r.names.Store(&names)
	return uint16(len(names)), true //nolint:gosec // at most MaxNames
}
