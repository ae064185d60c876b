package simulate

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// A record is what one line asks: calls, each of a domain and descriptors. Between reading
// and deciding it is bytes in the arena of its batch, because a minute of lines waits for
// its turn and slices of slices take five times the memory.
//
//	record      time of the line is kept beside it
//	  recorded  1 byte: what the log says became of the request
//	  shard     4 bytes
//	  lasts     how long the request took, in milliseconds
//	  calls     their number
//	  call      domain, request's hits, number of descriptors
//	  descriptor flags, hits, override, number of entries, keys and values
type record struct {
	recorded accesslog.Recorded
	// shard tells the replica, unless it is noShard.
	shard    uint32
	duration time.Duration
	calls    int
	rest     []byte
}

// noShard says that nothing tells the replica.
const noShard = 0

// What a descriptor has.
const (
	hasHits = 1 << iota
	isRefund
	hasOverride
)

// writer appends a record to an arena.
type writer struct {
	arena []byte
	// calls and descriptors are where the numbers of calls and of descriptors stand.
	calls, descriptors int
	entries            int
}

// beginRecord begins a record. Numbers of calls, descriptors and entries take a byte each, and
// are written as they become known.
func (w *writer) beginRecord(r accesslog.Recorded, shard, lasts uint32) (at int) {
	at = len(w.arena)
	w.arena = binary.AppendUvarint(binary.LittleEndian.AppendUint32(append(w.arena, byte(r)), shard), uint64(lasts))
	w.calls = len(w.arena)
	w.arena = append(w.arena, 0)
	return at
}

// maxCount bounds the calls of a record, the descriptors of a call and the entries of a
// descriptor, since a byte holds each. Envoy's configuration has a handful.
const maxCount = 255

// beginCall begins a call. It reports false if the record is full.
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

// beginDescriptor begins a descriptor. It reports false if the call is full.
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

// beginEntry begins an entry, whose value is the text that follows. It reports false if the
// descriptor is full.
func (w *writer) beginEntry(beginEntry []byte) bool {
	if w.arena[w.entries] == maxCount {
		return false
	}
	w.arena[w.entries]++
	w.appendText(beginEntry)
	return true
}

// addEntry appends a whole entry.
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

// dropDescriptor takes back the descriptor that was begun at a place of the arena.
func (w *writer) dropDescriptor(at int) {
	w.arena = w.arena[:at]
	w.arena[w.descriptors]--
}

// dropEmptyCall takes back the call that was begun at a place of the arena if it has no descriptor.
func (w *writer) dropEmptyCall(at int) {
	if w.arena[w.descriptors] == 0 {
		w.arena = w.arena[:at]
		w.arena[w.calls]--
	}
}

// read begins to read a record.
func (r *record) read(arena []byte) {
	lasts, rest := cutNumber(arena[5:])
	r.recorded, r.shard, r.duration = accesslog.Recorded(arena[0]), binary.LittleEndian.Uint32(arena[1:]), time.Duration(lasts)*time.Millisecond
	r.calls, r.rest = int(rest[0]), rest[1:]
}

// nextCall fills req with the next call, as views of the record's bytes. Req's descriptors
// are reused.
func (r *record) nextCall(req *descriptors.Request) {
	b := r.rest
	req.Domain, b = cutText(b)
	hits, b := cutNumber(b)
	req.HitsAddend = uint32(hits)
	count := int(b[0])
	b = b[1:]
	if more := count - cap(req.Descriptors); more > 0 { // those that are there keep their memory
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
	d.HasHits, d.Refund, d.HasOverride = flags&hasHits != 0, flags&isRefund != 0, flags&hasOverride != 0
	d.Hits = 0
	if d.HasHits {
		d.Hits, b = cutNumber(b)
	}
	if d.HasOverride {
		var limit, unit, multiplier uint64
		limit, b = cutNumber(b)
		unit, b = cutNumber(b)
		multiplier, b = cutNumber(b)
		d.Override = descriptors.Override{RequestsPerUnit: uint32(limit), Unit: int32(unit), UnitMultiplier: uint32(multiplier)}
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
