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
	shard uint32
	lasts time.Duration
	calls int
	rest  []byte
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

// begin begins a record. Numbers of calls, descriptors and entries take a byte each, and
// are written as they become known.
func (w *writer) begin(r accesslog.Recorded, shard, lasts uint32) (at int) {
	at = len(w.arena)
	w.arena = binary.AppendUvarint(binary.LittleEndian.AppendUint32(append(w.arena, byte(r)), shard), uint64(lasts))
	w.calls = len(w.arena)
	w.arena = append(w.arena, 0)
	return at
}

// mostOf bounds the calls of a record, the descriptors of a call and the entries of a
// descriptor, since a byte holds each. Envoy's configuration has a handful.
const mostOf = 255

// call begins a call. It reports false if the record is full.
func (w *writer) call(domain []byte, hits uint32) bool {
	if w.arena[w.calls] == mostOf {
		return false
	}
	w.arena[w.calls]++
	w.text(domain)
	w.arena = binary.AppendUvarint(w.arena, uint64(hits))
	w.descriptors = len(w.arena)
	w.arena = append(w.arena, 0)
	return true
}

// descriptor begins a descriptor. It reports false if the call is full.
func (w *writer) descriptor(d *descriptors.Descriptor) bool {
	if w.arena[w.descriptors] == mostOf {
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

// key begins an entry, whose value is the text that follows. It reports false if the
// descriptor is full.
func (w *writer) key(key []byte) bool {
	if w.arena[w.entries] == mostOf {
		return false
	}
	w.arena[w.entries]++
	w.text(key)
	return true
}

// entry appends a whole entry.
func (w *writer) entry(key, value []byte) bool {
	if !w.key(key) {
		return false
	}
	w.text(value)
	return true
}

func (w *writer) text(b []byte) {
	w.arena = append(binary.AppendUvarint(w.arena, uint64(len(b))), b...)
}

// dropDescriptor takes back the descriptor that was begun at a place of the arena.
func (w *writer) dropDescriptor(at int) {
	w.arena = w.arena[:at]
	w.arena[w.descriptors]--
}

// endCall takes back the call that was begun at a place of the arena if it has no descriptor.
func (w *writer) endCall(at int) {
	if w.arena[w.descriptors] == 0 {
		w.arena = w.arena[:at]
		w.arena[w.calls]--
	}
}

// read begins to read a record.
func (r *record) read(arena []byte) {
	lasts, rest := cutNumber(arena[5:])
	r.recorded, r.shard, r.lasts = accesslog.Recorded(arena[0]), binary.LittleEndian.Uint32(arena[1:]), time.Duration(lasts)*time.Millisecond
	r.calls, r.rest = int(rest[0]), rest[1:]
}

// next fills req with the next call, as views of the record's bytes. Req's descriptors
// are reused.
func (r *record) next(req *descriptors.Request) {
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
		b = readDescriptor(&req.Descriptors[i], b)
	}
	r.rest = b
}

func readDescriptor(d *descriptors.Descriptor, b []byte) []byte {
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
