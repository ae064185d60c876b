package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Log is what is to be read.
type Log struct {
	// Name is how people call it.
	Name string
	// Open opens it for reading from its begin. It is called once for each run over the
	// log.
	Open func() (io.ReadCloser, error)
}

const (
	// chunkBytes is how much of a log is parsed at once.
	chunkBytes = 256 << 10
	// maxLineBytes is the longest line. Envoy takes 60 KiB of headers.
	maxLineBytes = 1 << 20
	// maxOTLPLineBytes is for what a collector writes as a line: many requests.
	maxOTLPLineBytes = 64 << 20
)

// byteOrderMark is how some programs begin a text.
const byteOrderMark = "\ufeff"

// Chunk is whole lines of a log.
type Chunk struct {
	Bytes []byte
	// tooLong says that the chunk is the begin of a line that is too long, which costs
	// that line.
	tooLong bool
	// comments are the last #Fields: and the last #Date: above the chunk, in logs of the W3C's format; nil where there is none.
	comments [][]byte
	memory   *[chunkBytes]byte
}

// chunkPool is memory of chunks to be used again: it need not be zeroed.
var chunkPool = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// newChunk returns a chunk with room for more than a begin, which it has.
func newChunk(begin []byte) Chunk {
	var c Chunk
	if len(begin) < chunkBytes/2 {
		c.memory = chunkPool.Get().(*[chunkBytes]byte) //nolint:forcetypeassert // nothing else is there
		c.Bytes = c.memory[:]
	} else {
		c.Bytes = make([]byte, 2*len(begin))
	}
	c.Bytes = c.Bytes[:copy(c.Bytes, begin)]
	return c
}

// Free gives a chunk's memory back. Nothing may refer to it any more.
func (c *Chunk) Free() {
	if c.memory != nil {
		chunkPool.Put(c.memory)
	}
	*c = Chunk{}
}

// readChunks reads a log, gzipped or not, and yields it in chunks, to each of which it gives
// memory of its own. It returns an error of the log itself.
func readChunks(in io.Reader, longest int, yield func(Chunk) error) error {
	// What is read is longer than this buffer, and so does not go through it.
	buffered := bufio.NewReader(in)
	if magic, _ := buffered.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		zip, err := gzip.NewReader(bufio.NewReaderSize(buffered, chunkBytes))
		if err != nil {
			return fmt.Errorf("unzip: %w", err)
		}
		buffered = bufio.NewReader(gzipText{zip})
	}
	if mark, _ := buffered.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = buffered.Discard(len(byteOrderMark)) // it is there
	}
	skipping := false
	for c := newChunk(nil); ; {
		n := len(c.Bytes) // the begin of a line
		m, err := io.ReadFull(buffered, c.Bytes[n:cap(c.Bytes)])
		c.Bytes = c.Bytes[:n+m]
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return fmt.Errorf("read: %w", err)
		}
		if skipping {
			i := bytes.IndexByte(c.Bytes, '\n')
			if i < 0 {
				c.Bytes = c.Bytes[:0]
			} else {
				c.Bytes, skipping = c.Bytes[i+1:], false
			}
		}
		var carry []byte
		if !end && !skipping {
			last := bytes.LastIndexByte(c.Bytes, '\n')
			c.Bytes, carry = c.Bytes[:last+1], c.Bytes[last+1:]
		}
		tooLong := len(carry) > longest
		if tooLong {
			carry, skipping = nil, true
		}
		next := newChunk(carry) // before the chunk may be freed
		if len(c.Bytes) > 0 {
			if err := yield(c); err != nil {
				return err
			}
		} else {
			c.Free()
		}
		if tooLong {
			if err := yield(Chunk{tooLong: true}); err != nil {
				return err
			}
		}
		if end {
			next.Free()
			return nil
		}
		c = next
	}
}

// gzipText is the text of a gzipped log. That ends only where the log says so.
type gzipText struct{ *gzip.Reader }

func (z gzipText) Read(p []byte) (int, error) {
	n, err := z.Reader.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the gzipped log is cut: for what is there, pipe it: gzip -dc LOG | sluice simulate -")
	}
	return n, err
}

// FromStream returns a log that can be read only once, such as a pipe. It remembers the first
// part, by which the format is recognised.
func FromStream(name string, in io.Reader) Log {
	var begun bytes.Buffer
	opened := 0
	return Log{Name: name, Open: func() (io.ReadCloser, error) {
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

// NoLinesError is the error that logs have no lines.
func NoLinesError(logs []Log) error {
	var names []string
	for _, l := range logs {
		names = append(names, l.Name)
	}
	if len(names) > 3 {
		names = append(names[:3], "...")
	}
	return fmt.Errorf("%s: no lines", strings.Join(names, ", "))
}
