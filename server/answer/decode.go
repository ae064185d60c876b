package answer

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// errMalformed is the error of bytes that are not a RateLimitRequest.
var errMalformed = errors.New("request is not a valid envoy.service.ratelimit.v3.RateLimitRequest message")

// decoder decodes a request into a descriptors.Request whose slices are views of the encoded bytes.
// Within its bounds, it accepts and rejects the same messages as proto.Unmarshal, and merges
// repeated fields as protobuf does. Strings are the exception: they may contain invalid UTF-8.
// Envoy copies header values unchanged, and if they caused an error, a client could evade every
// limit with such a header.
//
// Descriptors and entries beyond a bound are counted but not stored. Otherwise a small request
// could use much memory.
type decoder struct {
	bounds  *Bounds
	req     descriptors.Request
	entries []descriptors.Entry // backing array for the entries of all descriptors
	// exceeded is the first bound that the request exceeds.
	exceeded *boundError
}

// reset prepares for the next request. It keeps the allocated memory, but no views of the last
// request.
func (d *decoder) reset() {
	clear(d.req.Descriptors)
	clear(d.entries)
	d.entries = d.entries[:0]
	d.exceeded = nil
	d.req = descriptors.Request{Descriptors: d.req.Descriptors[:0]}
}

// readField reads a tag and its value: val for varints, body for length-delimited fields. Values of
// other wire types, which our messages do not use, are skipped. ok is false if proto.Unmarshal
// would fail.
//
// The loops over the fields of a message repeat four lines. An iterator instead takes 8 to 10 %
// longer (BenchmarkAnswer, through=decode, 24 pairs of runs).
func readField(b []byte) (num protowire.Number, typ protowire.Type, val uint64, body, rest []byte, ok bool) {
	var tag uint64
	if b[0] < 0x80 {
		tag = uint64(b[0])
		b = b[1:]
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
	num = protowire.Number(tag >> 3)
	typ = protowire.Type(tag & 7)
	switch typ {
	case protowire.VarintType, protowire.BytesType:
		if len(b) > 0 && b[0] < 0x80 {
			val = uint64(b[0])
			b = b[1:]
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

// decode decodes a RateLimitRequest. The error is errMalformed or a *boundError.
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
			if !d.readDescriptor(body) {
				return errMalformed
			}
		case num == 3 && typ == protowire.VarintType: // hits_addend
			d.req.HitsAddend = uint32(val)
		}
	}
	if more > 0 {
		return &boundError{tooManyDescriptors, bounds.Descriptors, bounds.Descriptors + more}
	}
	if d.exceeded != nil {
		return d.exceeded
	}
	return nil
}

// readDescriptor decodes an extensions.common.ratelimit.v3.RateLimitDescriptor.
func (d *decoder) readDescriptor(b []byte) bool {
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
			if !readOverride(body, &r.Override) {
				return false
			}
		case num == 3 && typ == protowire.BytesType: // hits_addend, a UInt64Value
			r.HasHits = true
			if !readWrapper(body, &r.Hits) {
				return false
			}
		case num == 4 && typ == protowire.VarintType: // is_negative_hits
			r.Refund = val != 0
		}
	}
	if more > 0 && d.exceeded == nil {
		d.exceeded = &boundError{tooManyEntries, d.bounds.Entries, d.bounds.Entries + more}
	}
	// Earlier descriptors may have views of an array that append has replaced. Its contents are the
	// same.
	r.Entries = d.entries[first:len(d.entries):len(d.entries)]
	return true
}

// readEntry decodes a RateLimitDescriptor.Entry. Encoders write the key before the value. If both
// are shorter than 128 bytes, this does not need readField, which saves a third of the decoding
// time (BenchmarkAnswer, through=decode).
func (d *decoder) readEntry(b []byte) bool {
	if len(b) >= 4 && b[0] == 1<<3|2 && b[1] < 0x80 {
		at := 2 + int(b[1]) // the value's tag
		if at+2 <= len(b) && b[at] == 2<<3|2 && b[at+1] < 0x80 && at+2+int(b[at+1]) == len(b) {
			d.addEntry(descriptors.Entry{Key: b[2:at:at], Value: b[at+2:]})
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
	d.addEntry(e)
	return true
}

// addEntry stores an entry and checks the length of its key.
func (d *decoder) addEntry(e descriptors.Entry) {
	if len(e.Key) > d.bounds.KeyBytes && d.exceeded == nil {
		d.exceeded = &boundError{keyTooLong, d.bounds.KeyBytes, len(e.Key)}
	}
	d.entries = append(d.entries, e)
}

// readOverride decodes a RateLimitDescriptor.RateLimitOverride.
func readOverride(b []byte, o *descriptors.Override) bool {
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
			if !readWrapper(body, &v) {
				return false
			}
			o.UnitMultiplier = uint32(v)
		}
	}
	return true
}

// readWrapper decodes a google.protobuf.UInt64Value or UInt32Value into v. If the field is absent,
// v does not change.
func readWrapper(b []byte, v *uint64) bool {
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
