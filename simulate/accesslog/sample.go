package accesslog

import (
	"bytes"
	"errors"
	"fmt"
)

// sample contains the first nonempty lines of a log.
type sample struct {
	log   string
	lines [][]byte
	// row is the line number of the first of them.
	row int
}

const (
	// A log is recognised by its first sampleLines lines or sampleBytes bytes.
	sampleLines = 1000
	sampleBytes = 4 << 20
)

func (s *sample) String() string { return fmt.Sprintf("%s:%d", s.log, s.row) }

// read reads the sample of a log. It stops at a line longer than the maximum, which might not fit
// into memory.
func (s *sample) read(in Log) error {
	f, err := in.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	enough := errors.New("enough")
	read, empty, tooLong := 0, 0, false
	err = readChunks(f, func(c Chunk) error {
		if c.tooLong {
			tooLong = true
			return enough
		}
		for line := range bytes.Lines(c.Bytes) {
			if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
				s.lines = append(s.lines, line)
			} else if len(s.lines) == 0 {
				empty++
			}
		}
		if read += len(c.Bytes); len(s.lines) >= sampleLines || read > sampleBytes {
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return fmt.Errorf("%s: %w", in.Name, err)
	}
	s.log, s.row, s.lines = in.Name, empty+1, s.lines[:min(len(s.lines), sampleLines)]
	if tooLong && len(s.lines) == 0 {
		return fmt.Errorf("%v: %w", s, errTooLong)
	}
	return nil
}
