package limiter

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// sourceBytes is the read size: more than eight of the largest counters.
const sourceBytes = 512 << 10

// A source reads the fields of a snapshot and computes their checksum.
type source struct {
	r    *bufio.Reader
	crc  uint32 // of all consumed bytes
	read int64  // number of consumed bytes
	err  error  // why next failed
}

// next consumes n bytes, at most sourceBytes. They are valid until the next call. If the input is
// shorter, next returns its rest and an error.
func (s *source) next(n int) ([]byte, error) {
	b, err := s.r.Peek(n)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		s.err = fmt.Errorf("%w: unexpected end", ErrDamaged)
		return b, s.err
	default:
		s.err = fmt.Errorf("read counters: %w", err)
		return b, s.err
	}
	s.crc = crc32.Update(s.crc, castagnoli, b)
	s.read += int64(n)
	_, err = s.r.Discard(n) // never fails after Peek
	return b, err
}

// ReadByte implements [io.ByteReader].
func (s *source) ReadByte() (byte, error) {
	b, err := s.next(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// readUvarint consumes a uvarint of at most limit.
func (s *source) readUvarint(limit uint64) (uint64, error) {
	x, err := binary.ReadUvarint(s)
	switch {
	case s.err != nil:
		return 0, s.err
	case err != nil || x > limit:
		return 0, fmt.Errorf("%w: number above %d", ErrDamaged, limit)
	}
	return x, nil
}

// hasMore reports whether the input continues.
func (s *source) hasMore() (bool, error) {
	_, err := s.next(1)
	if errors.Is(err, ErrDamaged) {
		return false, nil
	}
	return err == nil, err
}
