package rlqs

import (
	"errors"
	"io"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Bounds on a report. A bucket beyond them is skipped and counted: an error would end the stream,
// and with it all assignments.
const (
	// maxIDBytes bounds the total size of the keys and values of a bucket ID.
	maxIDBytes = 1 << 10
	// maxEntries bounds the entries of a bucket ID.
	maxEntries = 16
	// maxFieldBytes bounds the buffered bytes of an incomplete field. The largest ID with its
	// framing fits, and leaves space for future fields of the API.
	maxFieldBytes = 2 << 10
)

// errMalformed is returned for bytes that are not a RateLimitQuotaUsageReports.
var errMalformed = errors.New("the report is not a valid envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports message")

// usage is a decoded BucketQuotaUsage. Its slices are valid until the visitor returns.
type usage struct {
	entries         []entry // sorted by key, without duplicates
	allowed, denied uint64
	// elapsed is the time since the previous report, in whole seconds, as Envoy truncates it.
	elapsed time.Duration
	// fault is the reason why the bucket gets no assignment.
	fault fault
}

type entry struct{ key, value []byte }

// fault is a defect of a bucket in a report.
type fault byte

const (
	faultNone fault = iota
	// faultInvalidUTF8: the ID is not valid UTF-8. Envoy resets a stream on which an action
	// contains such an ID.
	faultInvalidUTF8
	// faultTooLarge: the ID exceeds a bound.
	faultTooLarge
)

// visitor receives the contents of a report.
type visitor interface {
	// visitDomain is called with the domain, of at most maxIDBytes bytes.
	visitDomain(name []byte) error
	visitBucket(u *usage)
}

// decoder decodes reports that arrive in pieces. Strings may contain any bytes: Envoy copies header
// values unchanged, and a protobuf library would reject the complete report because of one invalid
// byte from one client.
//
// It accepts and rejects what proto.Unmarshal does, with these exceptions: it does not inspect
// fields of more than maxFieldBytes bytes; a bucket is visited before the rest of the report is
// known to be valid; groups, which proto3 lacks, are rejected.
type decoder struct {
	partial []byte // an incomplete field, at most maxFieldBytes bytes
	skip    uint64 // remaining bytes of an oversized field

	scratch *decoderScratch
}

// decoderScratch is memory that all decoders share.
type decoderScratch struct {
	usage   usage
	entries [maxEntries]entry
}

// feed decodes the next bytes of a report; last is true at its end. The decoder must not be used
// after an error.
func (d *decoder) feed(p []byte, last bool, v visitor) error {
	for len(p) > 0 {
		if d.skip > 0 {
			n := min(d.skip, uint64(len(p)))
			d.skip -= n
			p = p[n:]
			continue
		}
		if len(d.partial) > 0 {
			var err error
			if p, err = d.completeField(p, v); err != nil {
				return err
			}
			continue
		}
		n, size, err := fieldSize(p)
		switch {
		case err != nil:
			return err
		case n == 0 || size <= maxFieldBytes && size > uint64(len(p)):
			if d.partial == nil {
				d.partial = make([]byte, 0, maxFieldBytes)
			}
			d.partial = append(d.partial, p...)
			p = nil
		case size > maxFieldBytes:
			if err := d.skipOversized(p[0], v); err != nil {
				return err
			}
			d.skip = size
		default:
			if err := d.readField(p[:size], v); err != nil {
				return err
			}
			p = p[size:]
		}
	}
	if last && (len(d.partial) > 0 || d.skip > 0) {
		return errMalformed
	}
	return nil
}

// completeField appends bytes to the incomplete field and decodes it once it is complete. It
// returns the rest of p.
func (d *decoder) completeField(p []byte, v visitor) (rest []byte, err error) {
	n, size, err := fieldSize(d.partial)
	for ; n == 0 && err == nil && len(p) > 0; p = p[1:] { // the field's size is not known yet
		d.partial = append(d.partial, p[0])
		n, size, err = fieldSize(d.partial)
	}
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return p, nil
	case size > maxFieldBytes:
		if err := d.skipOversized(d.partial[0], v); err != nil {
			return nil, err
		}
		d.skip = size - uint64(len(d.partial))
		d.partial = d.partial[:0]
		return p, nil
	}
	more := min(int(size)-len(d.partial), len(p))
	d.partial = append(d.partial, p[:more]...)
	if len(d.partial) == int(size) {
		err = d.readField(d.partial, v)
		d.partial = d.partial[:0]
	}
	return p[more:], err
}

// fieldSize returns the size of the field at the start of p; head is the part for its tag and
// length. Both are 0 if p is too short.
func fieldSize(p []byte) (head int, size uint64, err error) {
	tag, n := protowire.ConsumeVarint(p)
	if n < 0 {
		return 0, 0, checkIncomplete(n)
	}
	if number := tag >> 3; number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		return 0, 0, errMalformed
	}
	switch protowire.Type(tag & 7) {
	case protowire.VarintType:
		_, m := protowire.ConsumeVarint(p[n:])
		if m < 0 {
			return 0, 0, checkIncomplete(m)
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
			return 0, 0, checkIncomplete(m)
		case length >= 1<<32:
			return 0, 0, errMalformed // a message is smaller than 4 GiB
		}
		return n + m, uint64(n+m) + length, nil
	default:
		return 0, 0, errMalformed
	}
}

// checkIncomplete returns nil for protowire's error code of an incomplete varint, and otherwise
// errMalformed.
func checkIncomplete(n int) error {
	if errors.Is(protowire.ParseError(n), io.ErrUnexpectedEOF) {
		return nil
	}
	return errMalformed
}

// skipOversized handles the tag of a field that is too large to be buffered.
func (d *decoder) skipOversized(tag byte, v visitor) error {
	switch tag {
	case 1<<3 | byte(protowire.BytesType):
		return errMalformedDomain
	case 2<<3 | byte(protowire.BytesType):
		d.scratch.usage = usage{fault: faultTooLarge}
		v.visitBucket(&d.scratch.usage)
	}
	return nil
}

var errMalformedDomain = errors.New("the domain of a report is longer than 1024 bytes")

func (d *decoder) readField(b []byte, v visitor) error {
	number, typ, _, body, _, ok := nextField(b)
	switch {
	case !ok:
		return errMalformed
	case number == 1 && typ == protowire.BytesType:
		if len(body) > maxIDBytes {
			return errMalformedDomain
		}
		return v.visitDomain(body)
	case number == 2 && typ == protowire.BytesType:
		u := &d.scratch.usage
		*u = usage{entries: d.scratch.entries[:0]}
		if !u.decode(body) {
			return errMalformed
		}
		u.validate()
		v.visitBucket(u)
	}
	return nil
}

// nextField decodes the field at the start of b, and returns the bytes after it as rest. value is
// set for varints and body for length-delimited fields; the values of other types are skipped.
func nextField(b []byte) (number protowire.Number, typ protowire.Type, value uint64, body, rest []byte, ok bool) {
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

// decode decodes a BucketQuotaUsage. It reports whether protobuf would accept it.
func (u *usage) decode(b []byte) bool {
	for len(b) > 0 {
		number, typ, value, body, rest, ok := nextField(b)
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

// maxElapsed bounds the elapsed time of a report.
const maxElapsed = 24 * time.Hour

// readElapsed decodes a Duration. A negative Duration counts as maxElapsed.
func (u *usage) readElapsed(b []byte) bool {
	for len(b) > 0 {
		number, typ, value, _, rest, ok := nextField(b)
		if !ok {
			return false
		}
		b = rest
		if number == 1 && typ == protowire.VarintType {
			u.elapsed = maxElapsed
			if value < uint64(maxElapsed/time.Second) {
				u.elapsed = time.Duration(value) * time.Second
			}
		}
	}
	return true
}

// readID decodes a BucketId: a map with its entries in any order. The last entry of a key wins.
func (u *usage) readID(b []byte) bool {
	for len(b) > 0 {
		number, typ, _, body, rest, ok := nextField(b)
		if !ok {
			return false
		}
		b = rest
		if number != 1 || typ != protowire.BytesType {
			continue
		}
		var e entry
		for len(body) > 0 {
			number, typ, _, text, rest, ok := nextField(body)
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
		u.addEntry(e)
	}
	return true
}

// addEntry inserts an entry in order of keys, or replaces the one with its key.
func (u *usage) addEntry(e entry) {
	at := len(u.entries)
	for at > 0 && string(u.entries[at-1].key) >= string(e.key) {
		at--
	}
	switch {
	case at < len(u.entries) && string(u.entries[at].key) == string(e.key):
		u.entries[at] = e
	case len(u.entries) == cap(u.entries):
		u.fault = faultTooLarge
	default:
		u.entries = append(u.entries, entry{})
		copy(u.entries[at+1:], u.entries[at:])
		u.entries[at] = e
	}
}

// validate sets fault if the bucket cannot be answered.
func (u *usage) validate() {
	size := 0
	for i := range u.entries {
		e := &u.entries[i]
		size += len(e.key) + len(e.value)
		if !utf8.Valid(e.key) || !utf8.Valid(e.value) {
			u.fault = faultInvalidUTF8
			return
		}
	}
	if size > maxIDBytes {
		u.fault = faultTooLarge
	}
}

// appendID appends the entries as a BucketId. Equal entries result in equal bytes.
func appendID(b []byte, entries []entry) []byte {
	for i := range entries {
		e := &entries[i]
		size := protowire.SizeTag(1) + protowire.SizeBytes(len(e.key)) + protowire.SizeTag(2) +
			protowire.SizeBytes(len(e.value))
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size)) //nolint:gosec // little more than maxIDBytes
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendBytes(b, e.key)
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendBytes(b, e.value)
	}
	return b
}
