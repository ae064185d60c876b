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

// Log is an access log.
type Log struct {
	// Name identifies the log in messages.
	Name string
	// Open opens the log at its start. It is called once for each pass over the log.
	Open func() (io.ReadCloser, error)
}

const (
	// chunkBytes is the size of most chunks.
	chunkBytes = 256 << 10
	// maxLineBytes is the maximum length of a line. Envoy accepts 60 KiB of headers.
	maxLineBytes = 1 << 20
)

const byteOrderMark = "\ufeff"

// Chunk contains complete lines of a log.
type Chunk struct {
	Bytes []byte
	// tooLong marks a chunk that stands for the start of a line above the maximum length. The line
	// is counted as unreadable.
	tooLong bool
	memory  *[chunkBytes]byte
}

// chunkPool recycles the memory of chunks, which need not be zeroed.
var chunkPool = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// newChunk returns a chunk that starts with prefix and has capacity for more.
func newChunk(prefix []byte) Chunk {
	var c Chunk
	if len(prefix) < chunkBytes/2 {
		c.memory = chunkPool.Get().(*[chunkBytes]byte) //nolint:forcetypeassert // nothing else is there
		c.Bytes = c.memory[:]
	} else {
		c.Bytes = make([]byte, 2*len(prefix))
	}
	c.Bytes = c.Bytes[:copy(c.Bytes, prefix)]
	return c
}

// Free recycles the memory of the chunk. The caller must have no reference to it.
func (c *Chunk) Free() {
	if c.memory != nil {
		chunkPool.Put(c.memory)
	}
	*c = Chunk{}
}

// ReadChunks reads a log, which may be gzipped, and yields chunks that own their memory. It returns
// the read error or that of yield.
func ReadChunks(in io.Reader, yield func(Chunk) error) error {
	// Reads are longer than this buffer, so they bypass it.
	buffered := bufio.NewReader(in)
	if magic, _ := buffered.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		zip, err := gzip.NewReader(bufio.NewReaderSize(buffered, chunkBytes))
		if err != nil {
			return fmt.Errorf("gzip: %w", err)
		}
		buffered = bufio.NewReader(gzipText{zip})
	}
	if mark, _ := buffered.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = buffered.Discard(len(byteOrderMark)) // cannot fail after Peek
	}
	skipping := false
	for c := newChunk(nil); ; {
		n := len(c.Bytes) // length of the incomplete line
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
				c.Bytes = c.Bytes[i+1:]
				skipping = false
			}
		}
		var carry []byte
		if !end && !skipping {
			last := bytes.LastIndexByte(c.Bytes, '\n')
			c.Bytes, carry = c.Bytes[:last+1], c.Bytes[last+1:]
		}
		tooLong := len(carry) > maxLineBytes
		if tooLong {
			carry = nil
			skipping = true
		}
		next := newChunk(carry) // before the consumer may free the chunk
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

// gzipText decompresses a log. Unlike gzip.Reader, it explains the error of a truncated file.
type gzipText struct{ *gzip.Reader }

func (z gzipText) Read(p []byte) (int, error) {
	n, err := z.Reader.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the gzip file is truncated; to simulate its beginning, run: gzip -dc LOG | sluice simulate -")
	}
	return n, err
}

// FromStream returns a log that can be read only once, such as a pipe. It buffers the first lines,
// from which the format is recognised, for the second Open.
func FromStream(name string, in io.Reader) Log {
	var prefix bytes.Buffer
	opened := 0
	return Log{Name: name, Open: func() (io.ReadCloser, error) {
		opened++
		switch opened {
		case 1:
			return io.NopCloser(io.TeeReader(in, &prefix)), nil
		case 2:
			return io.NopCloser(io.MultiReader(&prefix, in)), nil
		default:
			return nil, fmt.Errorf("%s can be read only once; save it to a file first", name)
		}
	}}
}

// NoLinesError returns the error for logs without lines.
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
