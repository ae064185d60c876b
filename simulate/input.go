package simulate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// Input is a log.
type Input struct {
	// Name is how people call it.
	Name string
	// Open opens it for reading from its begin. It is called once for each run over the
	// log.
	Open func() (io.ReadCloser, error)
}

const (
	// chunkBytes is how much of a log is parsed at once.
	chunkBytes = 256 << 10
	// mostLine is the longest line. Envoy takes 60 KiB of headers.
	mostLine = 1 << 20
	// mostOTLPLine is for what a collector writes as a line: many requests.
	mostOTLPLine = 64 << 20
)

// chunk is whole lines of a log.
type chunk struct {
	bytes []byte
	// tooLong says that the chunk is the begin of a line that is too long, which costs
	// that line.
	tooLong bool
}

// chunks reads a log, gzipped or not, and yields it in chunks, to each of which it gives
// memory of its own. It returns an error of the log itself.
func chunks(in io.Reader, longest int, yield func(chunk) error) error {
	buffered := bufio.NewReaderSize(in, chunkBytes)
	if magic, _ := buffered.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		zip, err := gzip.NewReader(buffered)
		if err != nil {
			return fmt.Errorf("unzip: %w", err)
		}
		buffered = bufio.NewReaderSize(zip, chunkBytes)
	}
	var carry []byte // the begin of a line
	skipping := false
	for {
		buf := make([]byte, max(chunkBytes, len(carry)*2))
		n := copy(buf, carry)
		carry = nil
		m, err := io.ReadFull(buffered, buf[n:])
		buf = buf[:n+m]
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return fmt.Errorf("read: %w", err)
		}
		if skipping {
			i := bytes.IndexByte(buf, '\n')
			if i < 0 {
				buf = buf[:0]
			} else {
				buf, skipping = buf[i+1:], false
			}
		}
		if !end && !skipping {
			last := bytes.LastIndexByte(buf, '\n')
			carry, buf = buf[last+1:], buf[:last+1]
			if len(carry) > longest {
				if len(buf) > 0 {
					if err := yield(chunk{bytes: buf}); err != nil {
						return err
					}
				}
				buf, carry, skipping = nil, nil, true
				if err := yield(chunk{tooLong: true}); err != nil {
					return err
				}
			}
		}
		if len(buf) > 0 {
			if err := yield(chunk{bytes: buf}); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
	}
}

// Once returns a log that can be read only once, such as a pipe. It remembers the first
// part, by which the format is recognised.
func Once(name string, in io.Reader) Input {
	var begun bytes.Buffer
	opened := 0
	return Input{Name: name, Open: func() (io.ReadCloser, error) {
		opened++
		switch opened {
		case 1:
			return io.NopCloser(io.TeeReader(in, &begun)), nil
		case 2:
			return io.NopCloser(io.MultiReader(&begun, in)), nil
		default:
			return nil, fmt.Errorf("%s can be read only once: save it to a file first", name)
		}
	}}
}
