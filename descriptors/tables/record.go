package tables

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// A journal begins with journalMagic. Records follow, each behind a head of three numbers of 4 bytes: its length, the
// checksum of these 4 bytes, and that of the record, both CRC-32C. The first has the columns, each of the others changes
// that became durable together:
//
//	a byte, changePut or changeDelete
//	the length of the key, and of each value its length and the value
//	for changePut: requests_per_unit, burst and unit, a byte of flags, the length of the name and the name
//
// Numbers are varints.
const journalMagic = "sluice table 1\n"

const (
	changePut    = 1
	changeDelete = 2

	flagUnlimited = 1
)

// recordHead is the length of what stands before a record.
const recordHead = 12

// maxRecordLen is the length of the longest record.
const maxRecordLen = 16 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errRecord says that bytes are no record.
var errRecord = errors.New("not a record")

// Change is a row to be put, or a key whose row is to be deleted.
type Change struct {
	// Values are those of the key columns.
	Values []string
	Row    Row
	Delete bool

	// Was is the row that it replaced, if Had is set. [Journal.Apply] says so.
	Was Row
	Had bool
}

// sealRecord fills in the head of the record that begins at from.
func sealRecord(b []byte, from int) {
	head, payload := b[from:from+recordHead], b[from+recordHead:]
	binary.LittleEndian.PutUint32(head, uint32(len(payload))) //nolint:gosec // bounded
	binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(head[:4], castagnoli))
	binary.LittleEndian.PutUint32(head[8:], crc32.Checksum(payload, castagnoli))
}

// nextRecord returns the payload of the record that b begins with, and what follows it. It fails if there is no whole one.
func nextRecord(b []byte) (payload, rest []byte, err error) {
	if len(b) < recordHead || crc32.Checksum(b[:4], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, nil, errRecord
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > maxRecordLen || int(n) > len(b)-recordHead {
		return nil, nil, errRecord
	}
	payload, rest = b[recordHead:recordHead+int(n)], b[recordHead+int(n):]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, nil, errRecord
	}
	return payload, rest, nil
}

// appendColumns appends the record of the columns.
func appendColumns(b []byte, columns []string) []byte {
	from := len(b)
	b = appendKey(append(b, make([]byte, recordHead)...), columns)
	sealRecord(b, from)
	return b
}

// appendChange appends a change to a record's payload.
func appendChange(b []byte, c *Change) []byte {
	op := byte(changePut)
	if c.Delete {
		op = changeDelete
	}
	n := 0
	for _, v := range c.Values {
		n += len(binary.AppendUvarint(nil, uint64(len(v)))) + len(v)
	}
	b = appendKey(binary.AppendUvarint(append(b, op), uint64(n)), c.Values)
	if c.Delete {
		return b
	}
	b = binary.AppendUvarint(b, uint64(c.Row.RequestsPerUnit))
	b = binary.AppendUvarint(b, uint64(c.Row.Burst))
	flags := byte(0)
	if c.Row.Unlimited {
		flags |= flagUnlimited
	}
	b = append(b, byte(c.Row.Unit), flags) //nolint:gosec // a unit is small
	return append(binary.AppendUvarint(b, uint64(len(c.Row.Name))), c.Row.Name...)
}

// payloadReader takes what appendChange wrote. After a fault it is bad and all that it returns is empty.
type payloadReader struct {
	b   []byte
	bad bool
}

func (r *payloadReader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *payloadReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *payloadReader) bytes() []byte {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// values splits a key.
func (r *payloadReader) values(dst []string) []string {
	for len(r.b) > 0 {
		dst = append(dst, string(r.bytes()))
	}
	return dst
}

// change takes a change. Its values are appended to values.
func (r *payloadReader) change(values []string) (c Change, ok bool) {
	op := r.byte()
	key := payloadReader{b: r.bytes()}
	c.Values, c.Delete = key.values(values), op == changeDelete
	if r.bad || key.bad || op != changePut && op != changeDelete {
		return c, false
	}
	if c.Delete {
		return c, true
	}
	number, burst := r.number(), r.number()
	c.Row = Row{RequestsPerUnit: uint32(number), Burst: uint32(burst), Unit: rules.Unit(r.byte())} //nolint:gosec // looked at below
	c.Row.Unlimited = r.byte()&flagUnlimited != 0
	c.Row.Name = string(r.bytes())
	ok = !r.bad && number>>32 == 0 && burst>>32 == 0 && c.Row.Unit <= rules.Week && len(c.Row.Name) <= maxNameBytes
	return c, ok
}
