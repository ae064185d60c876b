package h2

// tableBytes is the largest dynamic table that a client may ask for, HTTP/2's default
// (6.5.2).
const tableBytes = 4096

// entryOverhead is what an entry or a field counts beside its bytes: RFC 7541, section 4.1, and
// section 6.5.2.
const entryOverhead = 32

// headerTable is the dynamic table of a decoder: RFC 7541, section 2.3.2. All names and values are
// in one slice, the oldest first, so that an entry costs no object. The slice holds nothing that was
// evicted for longer than until it is full; then what is left moves to its beginning.
type headerTable struct {
	bytes []byte
	// base is the position of bytes[0] among all bytes that were ever inserted, and used that of
	// the oldest entry.
	base, start uint32
	entries     []tableEntry // a ring; its length is a power of two
	first, n    int          // the oldest entry, and how many there are
	size, max   int          // as RFC 7541 counts them
	version     uint64       // counts what has changed the table
}

type tableEntry struct {
	at          uint32 // position of the name; the value follows it
	name, value uint16
	headerKind
}

// get returns the entry i, of which 0 is the newest. Its bytes are valid until the next insert.
func (t *headerTable) get(i int) (f field, ok bool) {
	if i >= t.n {
		return field{}, false
	}
	e := &t.entries[(t.first+t.n-1-i)&(len(t.entries)-1)]
	at := int(e.at - t.base)
	value := at + int(e.name)
	return field{name: t.bytes[at:value:value], value: t.bytes[value : value+int(e.value)], headerKind: e.headerKind}, true
}

// resize changes the size that the client asks for, of at most tableBytes.
func (t *headerTable) resize(size int) {
	t.max = size
	t.version++
	t.evict(0)
}

// insert adds f, whose name and value must not be views of t. One that is larger than the whole
// table empties it: RFC 7541, section 4.4.
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

// evict drops the oldest entries until there is room for need.
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
		t.base, t.start = 0, 0
		t.bytes = t.bytes[:0]
	}
}

// reserve makes t.bytes large enough for n more, and returns the position of the first. Positions wrap
// around after 4 GiB, and only their differences count.
func (t *headerTable) reserve(n int) uint32 {
	if len(t.bytes)+n > cap(t.bytes) {
		live := t.bytes[t.start-t.base:]
		// Twice what is live, so that moving costs no more than inserting did.
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
	t.entries, t.first = ring, 0
}
