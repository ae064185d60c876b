package limiter

import (
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
	r   io.Reader
	buf []byte
	// buf[from:to] is read but not consumed. crc covers everything consumed before buf[summed].
	from, to, summed int
	crc              uint32
	read             int64 // bytes consumed
}

// fill reads until n bytes, at most sourceBytes, are buffered. It returns an error if the input is
// shorter.
func (s *source) fill(n int) error {
	if s.buf == nil {
		s.buf = make([]byte, sourceBytes)
	}
	s.checksum()
	s.to = copy(s.buf, s.buf[s.from:s.to])
	s.from = 0
	s.summed = 0
	m, err := io.ReadAtLeast(s.r, s.buf[s.to:], n-s.to)
	s.to += m
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: unexpected end", ErrDamaged)
	default:
		return fmt.Errorf("read counters: %w", err)
	}
}

// next consumes n bytes. They are valid until the next call.
func (s *source) next(n int) ([]byte, error) {
	if s.to-s.from < n {
		if err := s.fill(n); err != nil {
			return s.buf[s.from:s.to], err
		}
	}
	b := s.buf[s.from:][:n]
	s.from += n
	s.read += int64(n)
	return b, nil
}

// readUvarint consumes a uvarint of at most limit.
func (s *source) readUvarint(limit uint64) (uint64, error) {
	for n := 1; ; n++ {
		if s.to-s.from < n {
			if err := s.fill(n); err != nil {
				return 0, err
			}
		}
		x, length := binary.Uvarint(s.buf[s.from:s.to])
		switch {
		case length == 0:
			continue
		case length < 0 || x > limit:
			return 0, fmt.Errorf("%w: number above %d", ErrDamaged, limit)
		}
		s.from += length
		s.read += int64(length)
		return x, nil
	}
}

// checksum returns the checksum of everything consumed.
func (s *source) checksum() uint32 {
	s.crc = crc32.Update(s.crc, castagnoli, s.buf[s.summed:s.from])
	s.summed = s.from
	return s.crc
}

// hasMore reports whether the input continues.
func (s *source) hasMore() (bool, error) {
	if s.from < s.to {
		return true, nil
	}
	switch err := s.fill(1); {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrDamaged):
		return false, nil
	default:
		return false, err
	}
}
