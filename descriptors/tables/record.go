package tables

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// journalMagic is the beginning of a journal. Records follow:
//
//	the columns
//	the rows of the table when the file was created, as changes, in any number of records
//	the byte rowsEnd; the file got its name after all of the above was durable
//	changes that became durable together; such records are appended
//
// A record is a header and a payload. The header has three 4-byte numbers: the length of the payload,
// the checksum of that length, and the checksum of the payload, both CRC-32C. A change is:
//
//	a byte, changePut or changeDelete
//	the length of the key, and for each value its length and the value
//	for changePut: requests_per_unit, burst, unit, a byte of flags, the length of the name, and the name
//
// Numbers are varints, apart from the header, the unit and the flags.
const journalMagic = "sluice table 2\n"

const (
	changePut    = 1
	changeDelete = 2
	rowsEnd      = 3

	flagUnlimited = 1
)

const (
	// recordHead is the length of a record's header.
	recordHead = 12
	// maxRecordLen is the maximum length of a payload.
	maxRecordLen = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errRecord = errors.New("not a record")

// Change is a row to be put, or a key whose row is to be deleted.
type Change struct {
	// Values are those of the key columns.
	Values []string
	Row    Row
	Delete bool

	// Was is the row that the change replaced, if Had is true. [Journal.Apply] sets them.
	Was Row
	Had bool
}

// appendRecord appends a record with the given payload.
func appendRecord(b, payload []byte) []byte {
	n := binary.LittleEndian.AppendUint32(nil, uint32(len(payload))) //nolint:gosec // bounded
	b = binary.LittleEndian.AppendUint32(append(b, n...), crc32.Checksum(n, castagnoli))
	return append(binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli)), payload...)
}

// nextRecord returns the payload of the record at the beginning of b, and the bytes that follow the
// record.
func nextRecord(b []byte) (payload, rest []byte, err error) {
	if len(b) < recordHead || crc32.Checksum(b[:4], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, nil, errRecord
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > maxRecordLen || int(n) > len(b)-recordHead {
		return nil, nil, errRecord
	}
	payload = b[recordHead : recordHead+int(n)]
	rest = b[recordHead+int(n):]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, nil, errRecord
	}
	return payload, rest, nil
}

// appendChange appends a change to a record's payload.
func appendChange(b []byte, c *Change) []byte {
	op := byte(changePut)
	if c.Delete {
		op = changeDelete
	}
	key := appendKey(nil, c.Values)
	b = append(binary.AppendUvarint(append(b, op), uint64(len(key))), key...)
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

// payloadReader reads a payload. After an error it sets bad and returns zeros.
type payloadReader struct {
	b   []byte
	bad bool
}

func (r *payloadReader) readNumber() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.bad = true
		r.b = nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *payloadReader) readByte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *payloadReader) readBytes() []byte {
	n := r.readNumber()
	if n > uint64(len(r.b)) {
		r.bad = true
		r.b = nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// readValues appends the values of a key.
func (r *payloadReader) readValues(dst []string) []string {
	for len(r.b) > 0 {
		dst = append(dst, string(r.readBytes()))
	}
	return dst
}

// readChange reads a change, whose values it appends to the given ones.
func (r *payloadReader) readChange(values []string) (c Change, ok bool) {
	op := r.readByte()
	key := payloadReader{b: r.readBytes()}
	c.Values = key.readValues(values)
	c.Delete = op == changeDelete
	if r.bad || key.bad || op != changePut && op != changeDelete {
		return c, false
	}
	if c.Delete {
		return c, true
	}
	number := r.readNumber()
	burst := r.readNumber()
	c.Row = Row{RequestsPerUnit: uint32(number), Burst: uint32(burst), Unit: rules.Unit(r.readByte())} //nolint:gosec // checked below
	c.Row.Unlimited = r.readByte()&flagUnlimited != 0
	c.Row.Name = string(r.readBytes())
	ok = !r.bad && number>>32 == 0 && burst>>32 == 0 && c.Row.Unit <= rules.Week && len(c.Row.Name) <= maxNameBytes
	return c, ok
}
