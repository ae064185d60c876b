package rlqs

import (
	"errors"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The bounds on a report. Beyond them a bucket is skipped and counted; an error would end the stream, and with
// it the limits of everybody.
const (
	// mostID is how many bytes the keys and values of a bucket's id may have.
	mostID = 1 << 10
	// mostEntries is how many entries the id may have.
	mostEntries = 16
	// mostField is how many bytes of a field are kept until it is whole: an id of that many with what is
	// around it, and some room for fields that are not known yet.
	mostField = 2 << 10
)

// errMalformed is what bytes that are no RateLimitQuotaUsageReports give.
var errMalformed = errors.New("the report is not a valid envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports message")

// usage is what a report says of a bucket. Its slices are valid until the visitor returns.
type usage struct {
	entries         []entry // sorted by key, which differ
	allowed, denied uint64
	// elapsed is since the report before, in whole seconds. Envoy's clock says no more.
	elapsed time.Duration
	// fault says why the bucket cannot be answered.
	fault fault
}

// entry is a part of a bucket's id.
type entry struct{ key, value []byte }

// fault is what is wrong with a bucket of a report.
type fault byte

const (
	faultNone fault = iota
	// faultText: the id is no text. Envoy resets the stream if it is answered.
	faultText
	// faultSize: the id is beyond a bound.
	faultSize
)

// visitor takes what is in a report.
type visitor interface {
	// domain brings the domain, of at most mostID bytes.
	domain(name []byte) error
	bucket(u *usage)
}

// decoder reads reports that come in pieces. Strings may have any bytes: Envoy copies header values as they are,
// and protobuf's own decoders would refuse the whole report for one such byte of one client.
//
// It accepts and rejects what proto.Unmarshal does, with these exceptions: within a field of more than mostField
// bytes it does not look, a bucket is taken as it comes, before it is known whether the rest of the report is
// valid, and groups, which proto3 has not, are refused.
type decoder struct {
	part []byte // a field that is not whole, at most mostField bytes
	skip uint64 // bytes of a field that are to be thrown away

	scratch *decoderScratch
}

// decoderScratch is memory that decoders use in turn.
type decoderScratch struct {
	usage   usage
	entries [mostEntries]entry
}

// feed reads the next piece of a report. Last says that the report ends with it. After an error, the decoder
// must not be used again.
func (d *decoder) feed(p []byte, last bool, v visitor) error {
	for len(p) > 0 {
		if d.skip > 0 {
			n := min(d.skip, uint64(len(p)))
			d.skip, p = d.skip-n, p[n:]
			continue
		}
		if len(d.part) > 0 {
			var err error
			if p, err = d.complete(p, v); err != nil {
				return err
			}
			continue
		}
		n, size, err := fieldSize(p)
		switch {
		case err != nil:
			return err
		case n == 0 || size <= mostField && size > uint64(len(p)):
			if d.part == nil {
				d.part = make([]byte, 0, mostField)
			}
			d.part = append(d.part, p...)
			p = nil
		case size > mostField:
			if err := d.tooLarge(p[0], v); err != nil {
				return err
			}
			d.skip = size
		default:
			if err := d.field(p[:size], v); err != nil {
				return err
			}
			p = p[size:]
		}
	}
	if last && (len(d.part) > 0 || d.skip > 0) {
		return errMalformed
	}
	return nil
}

// complete adds to a field that is not whole, and reads it once it is. It returns the rest of p.
func (d *decoder) complete(p []byte, v visitor) (rest []byte, err error) {
	n, size, err := fieldSize(d.part)
	for ; n == 0 && err == nil && len(p) > 0; p = p[1:] { // not even its size is known
		d.part = append(d.part, p[0])
		n, size, err = fieldSize(d.part)
	}
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return p, nil
	case size > mostField:
		if err := d.tooLarge(d.part[0], v); err != nil {
			return nil, err
		}
		d.skip = size - uint64(len(d.part))
		d.part = d.part[:0]
		return p, nil
	}
	more := min(int(size)-len(d.part), len(p))
	d.part = append(d.part, p[:more]...)
	if len(d.part) == int(size) {
		err = d.field(d.part, v)
		d.part = d.part[:0]
	}
	return p[more:], err
}

// fieldSize returns how many bytes the field takes that p begins with, and how many its tag and length. Both are
// 0 if p does not say.
func fieldSize(p []byte) (head int, size uint64, err error) {
	tag, n := protowire.ConsumeVarint(p)
	if n < 0 {
		return 0, 0, incomplete(p, n)
	}
	if number := tag >> 3; number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		return 0, 0, errMalformed
	}
	switch protowire.Type(tag & 7) {
	case protowire.VarintType:
		_, m := protowire.ConsumeVarint(p[n:])
		if m < 0 {
			return 0, 0, incomplete(p[n:], m)
		}
		return n, uint64(n + m), nil
	case protowire.Fixed32Type:
		return n, uint64(n + 4), nil
	case protowire.Fixed64Type:
		return n, uint64(n + 8), nil
	case protowire.BytesType:
		length, m := protowire.ConsumeVarint(p[n:])
		switch {
		case m < 0:
			return 0, 0, incomplete(p[n:], m)
		case length >= 1<<32:
			return 0, 0, errMalformed // a message has no 4 GiB
		}
		return n + m, uint64(n+m) + length, nil
	default:
		return 0, 0, errMalformed
	}
}

// incomplete tells a varint whose end has not come from one that is wrong.
func incomplete(p []byte, n int) error {
	const longest = 10
	if protowire.ParseError(n) != nil && len(p) < longest {
		for _, b := range p {
			if b < 0x80 {
				return errMalformed
			}
		}
		return nil
	}
	return errMalformed
}

// tooLarge passes over a field that is larger than any that is read.
func (d *decoder) tooLarge(tag byte, v visitor) error {
	switch tag {
	case 1<<3 | byte(protowire.BytesType):
		return errMalformedDomain
	case 2<<3 | byte(protowire.BytesType):
		d.scratch.usage = usage{fault: faultSize}
		v.bucket(&d.scratch.usage)
	}
	return nil
}

var errMalformedDomain = errors.New("the domain of a report has more than 1024 bytes")

// field reads a field of a report.
func (d *decoder) field(b []byte, v visitor) error {
	number, typ, _, body, _, ok := next(b)
	switch {
	case !ok:
		return errMalformed
	case number == 1 && typ == protowire.BytesType:
		if len(body) > mostID {
			return errMalformedDomain
		}
		return v.domain(body)
	case number == 2 && typ == protowire.BytesType:
		u := &d.scratch.usage
		*u = usage{entries: d.scratch.entries[:0]}
		if !u.read(body) {
			return errMalformed
		}
		u.check()
		v.bucket(u)
	}
	return nil
}

// next reads the field that b begins with. Of a type that no field of ours has, it gives no value.
func next(b []byte) (number protowire.Number, typ protowire.Type, value uint64, body, rest []byte, ok bool) {
	if len(b) >= 2 && b[0] >= 8 && b[0] < 0x80 && b[1] < 0x80 { // nearly all fields
		switch size := int(b[1]); {
		case b[0]&7 == byte(protowire.VarintType):
			return protowire.Number(b[0] >> 3), protowire.VarintType, uint64(b[1]), nil, b[2:], true
		case b[0]&7 == byte(protowire.BytesType) && size <= len(b)-2:
			return protowire.Number(b[0] >> 3), protowire.BytesType, 0, b[2 : 2+size], b[2+size:], true
		}
	}
	number, typ, n := protowire.ConsumeTag(b)
	if n < 0 || number > protowire.MaxValidNumber {
		return 0, 0, 0, nil, nil, false
	}
	b = b[n:]
	switch typ {
	case protowire.VarintType:
		value, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		body, n = protowire.ConsumeBytes(b)
	case protowire.StartGroupType:
		n = -1
	default:
		n = protowire.ConsumeFieldValue(number, typ, b)
	}
	if n < 0 {
		return 0, 0, 0, nil, nil, false
	}
	return number, typ, value, body, b[n:], true
}

// read reads a BucketQuotaUsage. It reports false if protobuf would fail.
func (u *usage) read(b []byte) bool {
	for len(b) > 0 {
		number, typ, value, body, rest, ok := next(b)
		if !ok {
			return false
		}
		b = rest
		switch {
		case number == 1 && typ == protowire.BytesType:
			ok = u.readID(body)
		case number == 2 && typ == protowire.BytesType:
			ok = u.readElapsed(body)
		case number == 3 && typ == protowire.VarintType:
			u.allowed = value
		case number == 4 && typ == protowire.VarintType:
			u.denied = value
		}
		if !ok {
			return false
		}
	}
	return true
}

// mostElapsed bounds what an Envoy says has passed.
const mostElapsed = 24 * time.Hour

// readElapsed reads a Duration. One that is negative counts as very long.
func (u *usage) readElapsed(b []byte) bool {
	for len(b) > 0 {
		number, typ, value, _, rest, ok := next(b)
		if !ok {
			return false
		}
		b = rest
		if number == 1 && typ == protowire.VarintType {
			u.elapsed = mostElapsed
			if value < uint64(mostElapsed/time.Second) {
				u.elapsed = time.Duration(value) * time.Second
			}
		}
	}
	return true
}

// readID reads a BucketId: a map, whose entries come in any order, and of which the last of a key counts.
func (u *usage) readID(b []byte) bool {
	for len(b) > 0 {
		number, typ, _, body, rest, ok := next(b)
		if !ok {
			return false
		}
		b = rest
		if number != 1 || typ != protowire.BytesType {
			continue
		}
		var e entry
		for len(body) > 0 {
			number, typ, _, text, rest, ok := next(body)
			if !ok {
				return false
			}
			body = rest
			switch {
			case number == 1 && typ == protowire.BytesType:
				e.key = text
			case number == 2 && typ == protowire.BytesType:
				e.value = text
			}
		}
		u.add(e)
	}
	return true
}

// add puts an entry in its place.
func (u *usage) add(e entry) {
	at := len(u.entries)
	for at > 0 && string(u.entries[at-1].key) >= string(e.key) {
		at--
	}
	switch {
	case at < len(u.entries) && string(u.entries[at].key) == string(e.key):
		u.entries[at] = e
	case len(u.entries) == cap(u.entries):
		u.fault = faultSize
	default:
		u.entries = append(u.entries, entry{})
		copy(u.entries[at+1:], u.entries[at:])
		u.entries[at] = e
	}
}

// check finds what keeps the bucket from being answered.
func (u *usage) check() {
	size := 0
	for i := range u.entries {
		e := &u.entries[i]
		size += len(e.key) + len(e.value)
		if !utf8.Valid(e.key) || !utf8.Valid(e.value) {
			u.fault = faultText
			return
		}
	}
	if size > mostID {
		u.fault = faultSize
	}
}

// appendID appends the entries as a BucketId. The same entries give the same bytes.
func appendID(b []byte, entries []entry) []byte {
	for i := range entries {
		e := &entries[i]
		size := protowire.SizeTag(1) + protowire.SizeBytes(len(e.key)) + protowire.SizeTag(2) + protowire.SizeBytes(len(e.value))
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size)) //nolint:gosec // at most mostID and a little
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendBytes(b, e.key)
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendBytes(b, e.value)
	}
	return b
}
