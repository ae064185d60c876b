package h2

// tableBytes is the size of the largest dynamic table that a client may use, the default of HTTP/2
// (6.5.2).
const tableBytes = 4096

// entryOverhead is the overhead of an entry of the table (RFC 7541, section 4.1), and of a field in
// a header list (6.5.2).
const entryOverhead = 32

// headerTable is the dynamic table of a decoder: RFC 7541, section 2.3.2. All names and values are
// in one slice, the oldest first, so that entries are not allocated one by one. When the slice is
// full, the bytes of evicted entries are removed by moving the others.
type headerTable struct {
	bytes []byte
	// Positions count all bytes ever inserted: base is the position of bytes[0], and start the
	// position of the oldest entry.
	base, start uint32
	entries     []tableEntry // a ring; its length is a power of two
	first, n    int          // index of the oldest entry, and the number of entries
	size, max   int          // as RFC 7541 counts them
	version     uint64       // increases with each change of the table
}

type tableEntry struct {
	at          uint32 // position of the name, which the value follows
	name, value uint16
	headerKind
}

// get returns the entry i, where 0 is the newest. Its bytes are valid until the next insert.
func (t *headerTable) get(i int) (f field, ok bool) {
	if i >= t.n {
		return field{}, false
	}
	e := &t.entries[(t.first+t.n-1-i)&(len(t.entries)-1)]
	at := int(e.at - t.base)
	value := at + int(e.name)
	return field{
		name: t.bytes[at:value:value], value: t.bytes[value : value+int(e.value)], headerKind: e.headerKind,
	}, true
}

// resize changes the maximum size, which must be at most tableBytes.
func (t *headerTable) resize(size int) {
	t.max = size
	t.version++
	t.evict(0)
}

// insert adds f, whose name and value must not be views of the table. A field that is larger than
// the table empties it: RFC 7541, section 4.4.
func (t *headerTable) insert(f *field) {
	need := len(f.name) + len(f.value) + entryOverhead
	t.version++
	t.evict(need)
	if need > t.max {
		return
	}
	if t.n == len(t.entries) {
		t.growRing()
	}
	at := t.reserve(need - entryOverhead)
	t.bytes = append(append(t.bytes, f.name...), f.value...)
	t.entries[(t.first+t.n)&(len(t.entries)-1)] = tableEntry{
		at: at, name: uint16(len(f.name)), value: uint16(len(f.value)), headerKind: f.headerKind, //nolint:gosec // both are less than tableBytes
	}
	t.n++
	t.size += need
}

// evict removes the oldest entries until need bytes fit.
func (t *headerTable) evict(need int) {
	for t.n > 0 && t.size+need > t.max {
		t.version++
		e := &t.entries[t.first]
		bytes := uint32(e.name) + uint32(e.value)
		t.start = e.at + bytes
		t.size -= int(bytes) + entryOverhead
		t.first = (t.first + 1) & (len(t.entries) - 1)
		t.n--
	}
	if t.n == 0 {
		t.base = 0
		t.start = 0
		t.bytes = t.bytes[:0]
	}
}

// reserve ensures space for n bytes, and returns the position of the first. Positions wrap around
// after 4 GiB; only differences matter.
func (t *headerTable) reserve(n int) uint32 {
	if len(t.bytes)+n > cap(t.bytes) {
		live := t.bytes[t.start-t.base:]
		// Twice the size of the live entries, so that moving costs no more than inserting.
		size := 256
		for size < 2*(len(live)+n) {
			size *= 2
		}
		if size > cap(t.bytes) {
			t.bytes = make([]byte, 0, size)
		}
		t.bytes = append(t.bytes[:0], live...)
		t.base = t.start
	}
	return t.base + uint32(len(t.bytes)) //nolint:gosec // at most 4 * tableBytes
}

func (t *headerTable) growRing() {
	ring := make([]tableEntry, max(8, 2*len(t.entries)))
	for i := range t.n {
		ring[i] = t.entries[(t.first+i)&(len(t.entries)-1)]
	}
	t.entries = ring
	t.first = 0
}
