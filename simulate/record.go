package simulate

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// record is the calls of one line, each with a domain and descriptors. Until it is decided it is
// encoded in its batch's arena, because a minute of requests waits to be sorted, and nested slices
// would take five times the memory.
//
//	record      its time is stored separately
//	  recorded  1 byte: the recorded outcome
//	  duration  of the request, in milliseconds
//	  calls     number of calls
//	  call      domain, hits of the request, number of descriptors
//	  descriptor flags, hits, override, number of entries, keys and values
type record struct {
	recorded accesslog.Recorded
	duration time.Duration
	calls    int
	rest     []byte
}

// Flags of a descriptor.
const (
	hasHits = 1 << iota
	isRefund
	hasOverride
)

type writer struct {
	arena []byte
	// calls, descriptors and entries are the positions of the current counts.
	calls, descriptors int
	entries            int
}

// beginRecord begins a record. The counts of calls, descriptors and entries take a byte each, and
// are incremented later.
func (w *writer) beginRecord(r accesslog.Recorded, milliseconds uint32) (at int) {
	at = len(w.arena)
	w.arena = binary.AppendUvarint(append(w.arena, byte(r)), uint64(milliseconds))
	w.calls = len(w.arena)
	w.arena = append(w.arena, 0)
	return at
}

// maxCount is the maximum number of calls of a record, descriptors of a call and entries of a
// descriptor, because their counts are bytes. Envoy's configuration has a handful.
const maxCount = 255

// beginCall begins a call. It returns false if the record is full.
func (w *writer) beginCall(domain []byte, hits uint32) bool {
	if w.arena[w.calls] == maxCount {
		return false
	}
	w.arena[w.calls]++
	w.appendText(domain)
	w.arena = binary.AppendUvarint(w.arena, uint64(hits))
	w.descriptors = len(w.arena)
	w.arena = append(w.arena, 0)
	return true
}

// beginDescriptor begins a descriptor. It returns false if the call is full.
func (w *writer) beginDescriptor(d *descriptors.Descriptor) bool {
	if w.arena[w.descriptors] == maxCount {
		return false
	}
	w.arena[w.descriptors]++
	var flags byte
	if d.HasHits {
		flags |= hasHits
	}
	if d.Refund {
		flags |= isRefund
	}
	if d.HasOverride {
		flags |= hasOverride
	}
	w.arena = append(w.arena, flags)
	if d.HasHits {
		w.arena = binary.AppendUvarint(w.arena, d.Hits)
	}
	if d.HasOverride {
		w.arena = binary.AppendUvarint(w.arena, uint64(d.Override.RequestsPerUnit))
		w.arena = binary.AppendUvarint(w.arena, uint64(d.Override.Unit))
		w.arena = binary.AppendUvarint(w.arena, uint64(d.Override.UnitMultiplier))
	}
	w.entries = len(w.arena)
	w.arena = append(w.arena, 0)
	return true
}

// beginEntry begins an entry; its value follows as text. It returns false if the descriptor is
// full.
func (w *writer) beginEntry(key []byte) bool {
	if w.arena[w.entries] == maxCount {
		return false
	}
	w.arena[w.entries]++
	w.appendText(key)
	return true
}

func (w *writer) addEntry(key, value []byte) bool {
	if !w.beginEntry(key) {
		return false
	}
	w.appendText(value)
	return true
}

func (w *writer) appendText(b []byte) {
	w.arena = append(binary.AppendUvarint(w.arena, uint64(len(b))), b...)
}

// dropDescriptor removes the descriptor that begins at position at.
func (w *writer) dropDescriptor(at int) {
	w.arena = w.arena[:at]
	w.arena[w.descriptors]--
}

// dropEmptyCall removes the call that begins at position at if it has no descriptor.
func (w *writer) dropEmptyCall(at int) {
	if w.arena[w.descriptors] == 0 {
		w.arena = w.arena[:at]
		w.arena[w.calls]--
	}
}

func (r *record) read(arena []byte) {
	milliseconds, rest := cutNumber(arena[1:])
	r.recorded = accesslog.Recorded(arena[0])
	r.duration = time.Duration(milliseconds) * time.Millisecond
	r.calls = int(rest[0])
	r.rest = rest[1:]
}

// nextCall fills req with the next call as views of the record. It reuses req's descriptors.
func (r *record) nextCall(req *descriptors.Request) {
	b := r.rest
	req.Domain, b = cutText(b)
	hits, b := cutNumber(b)
	req.HitsAddend = uint32(hits)
	count := int(b[0])
	b = b[1:]
	if more := count - cap(req.Descriptors); more > 0 { // keep the memory of existing descriptors
		req.Descriptors = append(req.Descriptors[:cap(req.Descriptors)], make([]descriptors.Descriptor, more)...)
	}
	req.Descriptors = req.Descriptors[:count]
	for i := range req.Descriptors {
		b = decodeDescriptor(&req.Descriptors[i], b)
	}
	r.rest = b
}

func decodeDescriptor(d *descriptors.Descriptor, b []byte) []byte {
	flags := b[0]
	b = b[1:]
	d.HasHits = flags&hasHits != 0
	d.Refund = flags&isRefund != 0
	d.HasOverride = flags&hasOverride != 0
	d.Hits = 0
	if d.HasHits {
		d.Hits, b = cutNumber(b)
	}
	if d.HasOverride {
		var limit, unit, multiplier uint64
		limit, b = cutNumber(b)
		unit, b = cutNumber(b)
		multiplier, b = cutNumber(b)
		d.Override = descriptors.Override{
			RequestsPerUnit: uint32(limit), Unit: int32(unit), UnitMultiplier: uint32(multiplier),
		}
	}
	entries := int(b[0])
	b = b[1:]
	d.Entries = slices.Grow(d.Entries[:0], entries)[:entries]
	for i := range d.Entries {
		e := &d.Entries[i]
		e.Key, b = cutText(b)
		e.Value, b = cutText(b)
	}
	return b
}

func cutText(b []byte) (text, rest []byte) {
	length, b := cutNumber(b)
	return b[:length:length], b[length:]
}

func cutNumber(b []byte) (n uint64, rest []byte) {
	if n := uint64(b[0]); n < 0x80 {
		return n, b[1:]
	}
	n, length := binary.Uvarint(b)
	return n, b[length:]
}
