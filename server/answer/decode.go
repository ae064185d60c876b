package answer

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// errMalformed is what bytes that are no RateLimitRequest give.
var errMalformed = errors.New("request is not a valid envoy.service.ratelimit.v3.RateLimitRequest message")

// decoder turns request bytes into a descriptors.Request whose slices are views of those bytes.
// Within its bounds it accepts and rejects exactly what proto.Unmarshal does, and merges repeated
// fields as protobuf does, with one exception: strings may have any bytes. Envoy copies header
// values as they are. An error would let a client with a header that is not UTF-8 pass every limit.
//
// Descriptors and entries beyond a bound are counted but not kept. Otherwise a few bytes could take
// much memory.
type decoder struct {
	bounds  *Bounds
	req     descriptors.Request
	entries []descriptors.Entry // backs the entries of all descriptors
	// excess is the first bound that the request is beyond.
	excess *boundError
}

// reset drops the views of the last request and keeps the memory.
func (d *decoder) reset() {
	clear(d.req.Descriptors)
	clear(d.entries)
	d.entries = d.entries[:0]
	d.excess = nil
	d.req = descriptors.Request{Descriptors: d.req.Descriptors[:0]}
}

// readField reads one tag and, if our messages use its wire type, its value: val for varints, body for
// length-delimited fields. It skips the values of other wire types. ok is false if protobuf would
// fail.
//
// The loops over a message's fields repeat four lines. A struct that walks over the fields in one
// place instead takes 8 to 10 % longer (BenchmarkAnswer, through=decode, 24 pairs of runs).
func readField(b []byte) (num protowire.Number, typ protowire.Type, val uint64, body, rest []byte, ok bool) {
	var tag uint64
	if b[0] < 0x80 {
		tag, b = uint64(b[0]), b[1:]
	} else {
		var n int
		if tag, n = protowire.ConsumeVarint(b); n < 0 {
			return 0, 0, 0, nil, nil, false
		}
		b = b[n:]
	}
	if n := tag >> 3; n < uint64(protowire.MinValidNumber) || n > uint64(protowire.MaxValidNumber) {
		return 0, 0, 0, nil, nil, false
	}
	num, typ = protowire.Number(tag>>3), protowire.Type(tag&7)
	switch typ {
	case protowire.VarintType, protowire.BytesType:
		if len(b) > 0 && b[0] < 0x80 {
			val, b = uint64(b[0]), b[1:]
		} else {
			var n int
			if val, n = protowire.ConsumeVarint(b); n < 0 {
				return 0, 0, 0, nil, nil, false
			}
			b = b[n:]
		}
		if typ == protowire.VarintType {
			return num, typ, val, nil, b, true
		}
		if val > uint64(len(b)) {
			return 0, 0, 0, nil, nil, false
		}
		return num, typ, 0, b[:val], b[val:], true
	default:
		n := protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return 0, 0, 0, nil, nil, false
		}
		return num, typ, 0, nil, b[n:], true
	}
}

// decode reads a RateLimitRequest. It returns errMalformed or a *boundError.
func (d *decoder) decode(b []byte, bounds *Bounds) error {
	if len(b) > bounds.MessageBytes {
		return &boundError{messageTooLarge, bounds.MessageBytes, len(b)}
	}
	d.bounds = bounds
	more := 0 // descriptors beyond the bound
	for len(b) > 0 {
		num, typ, val, body, rest, ok := readField(b)
		if !ok {
			return errMalformed
		}
		b = rest
		switch {
		case num == 1 && typ == protowire.BytesType: // domain
			d.req.Domain = body
		case num == 2 && typ == protowire.BytesType: // descriptors
			if len(d.req.Descriptors) == bounds.Descriptors {
				more++
				continue
			}
			if !d.descriptor(body) {
				return errMalformed
			}
		case num == 3 && typ == protowire.VarintType: // hits_addend
			d.req.HitsAddend = uint32(val)
		}
	}
	if more > 0 {
		return &boundError{tooManyDescriptors, bounds.Descriptors, bounds.Descriptors + more}
	}
	if d.excess != nil {
		return d.excess
	}
	return nil
}

// descriptor reads an extensions.common.ratelimit.v3.RateLimitDescriptor.
func (d *decoder) descriptor(b []byte) bool {
	d.req.Descriptors = append(d.req.Descriptors, descriptors.Descriptor{})
	r := &d.req.Descriptors[len(d.req.Descriptors)-1]
	first := len(d.entries)
	more := 0 // entries beyond the bound
	for len(b) > 0 {
		num, typ, val, body, rest, ok := readField(b)
		if !ok {
			return false
		}
		b = rest
		switch {
		case num == 1 && typ == protowire.BytesType: // entries
			if len(d.entries)-first == d.bounds.Entries {
				more++
				continue
			}
			if !d.readEntry(body) {
				return false
			}
		case num == 2 && typ == protowire.BytesType: // limit
			r.HasOverride = true
			if !override(body, &r.Override) {
				return false
			}
		case num == 3 && typ == protowire.BytesType: // hits_addend, a UInt64Value
			r.HasHits = true
			if !wrapper(body, &r.Hits) {
				return false
			}
		case num == 4 && typ == protowire.VarintType: // is_negative_hits
			r.Refund = val != 0
		}
	}
	if more > 0 && d.excess == nil {
		d.excess = &boundError{tooManyEntries, d.bounds.Entries, d.bounds.Entries + more}
	}
	// An append may have moved d.entries since; earlier descriptors then keep
	// views of the old array, whose contents are the same.
	r.Entries = d.entries[first:len(d.entries):len(d.entries)]
	return true
}

// readEntry reads a RateLimitDescriptor.Entry. Encoders write the key and then the value. If both have
// less than 128 bytes, they are read without readField, which is a third of all decoding
// (BenchmarkAnswer, through=decode).
func (d *decoder) readEntry(b []byte) bool {
	if len(b) >= 4 && b[0] == 1<<3|2 && b[1] < 0x80 {
		at := 2 + int(b[1]) // the value's tag
		if at+2 <= len(b) && b[at] == 2<<3|2 && b[at+1] < 0x80 && at+2+int(b[at+1]) == len(b) {
			d.add(descriptors.Entry{Key: b[2:at:at], Value: b[at+2:]})
			return true
		}
	}
	var e descriptors.Entry
	for len(b) > 0 {
		num, typ, _, body, rest, ok := readField(b)
		if !ok {
			return false
		}
		b = rest
		if typ != protowire.BytesType || num > 2 {
			continue
		}
		if num == 1 {
			e.Key = body
		} else {
			e.Value = body
		}
	}
	d.add(e)
	return true
}

// add keeps an entry.
func (d *decoder) add(e descriptors.Entry) {
	if len(e.Key) > d.bounds.KeyBytes && d.excess == nil {
		d.excess = &boundError{keyTooLong, d.bounds.KeyBytes, len(e.Key)}
	}
	d.entries = append(d.entries, e)
}

// override reads a RateLimitDescriptor.RateLimitOverride.
func override(b []byte, o *descriptors.Override) bool {
	for len(b) > 0 {
		num, typ, val, body, rest, ok := readField(b)
		if !ok {
			return false
		}
		b = rest
		switch {
		case num == 1 && typ == protowire.VarintType: // requests_per_unit
			o.RequestsPerUnit = uint32(val)
		case num == 2 && typ == protowire.VarintType: // unit
			o.Unit = int32(val) // an enum is the low 32 bits of its varint
		case num == 3 && typ == protowire.BytesType: // unit_multiplier, a UInt32Value
			v := uint64(o.UnitMultiplier)
			if !wrapper(body, &v) {
				return false
			}
			o.UnitMultiplier = uint32(v)
		}
	}
	return true
}

// wrapper reads a google.protobuf.UInt64Value or UInt32Value into v. If the field is absent, v does
// not change.
func wrapper(b []byte, v *uint64) bool {
	for len(b) > 0 {
		num, typ, val, _, rest, ok := readField(b)
		if !ok {
			return false
		}
		b = rest
		if num == 1 && typ == protowire.VarintType { // value
			*v = val
		}
	}
	return true
}
