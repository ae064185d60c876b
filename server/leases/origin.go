package leases

import (
	"encoding/binary"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// maxOriginBytes bounds the total length of all origins. Beyond it, leases have no origin and are
// not reviewed.
const maxOriginBytes = 16 << 20

// maxSpareOrigin is the maximum capacity of an origin whose memory is reused.
const maxSpareOrigin = 1 << 10

func spareOrigin(b []byte) []byte {
	if cap(b) > maxSpareOrigin {
		return nil
	}
	return b[:0]
}

// appendOrigin encodes an origin: the name of the limit, and the domain and descriptor of the
// request without hits.
func appendOrigin(b []byte, origin *Origin) []byte {
	b = append(appendLength(b, len(origin.Limit)), origin.Limit...)
	b = append(appendLength(b, len(origin.Domain)), origin.Domain...)
	d := origin.Descriptor
	if o := &d.Override; d.HasOverride {
		b = binary.AppendUvarint(append(b, 1), uint64(o.RequestsPerUnit))
		b = binary.AppendUvarint(b, uint64(uint32(o.Unit))) //nolint:gosec // reinterpreted
		b = binary.AppendUvarint(b, uint64(o.UnitMultiplier))
	} else {
		b = append(b, 0)
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		b = append(appendLength(b, len(e.Key)), e.Key...)
		b = append(appendLength(b, len(e.Value)), e.Value...)
	}
	return b
}

// appendLength is [binary.AppendUvarint], which is not inlined.
func appendLength(b []byte, n int) []byte {
	if n < 0x80 {
		return append(b, byte(n)) //nolint:gosec // a length
	}
	return binary.AppendUvarint(b, uint64(n))
}

// readOrigin decodes an origin into request and returns the name of the limit. Both are views of b.
func readOrigin(b []byte, request *descriptors.Request) (limit []byte) {
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[n:]
		return v
	}
	part := func() (p []byte) {
		n := number()
		p = b[:n:n]
		b = b[n:]
		return p
	}
	limit = part()
	d := descriptors.Descriptor{}
	if len(request.Descriptors) > 0 {
		d.Entries = request.Descriptors[0].Entries[:0]
	}
	*request = descriptors.Request{Domain: part(), Descriptors: request.Descriptors[:0]}
	if d.HasOverride = number() > 0; d.HasOverride {
		d.Override = descriptors.Override{RequestsPerUnit: uint32(number()), Unit: int32(number()), UnitMultiplier: uint32(number())} //nolint:gosec // as appended
	}
	for len(b) > 0 {
		d.Entries = append(d.Entries, descriptors.Entry{Key: part(), Value: part()})
	}
	request.Descriptors = append(request.Descriptors, d)
	return limit
}
