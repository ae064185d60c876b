package builtin

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"sync"
	"time"
)

// A kilobyte of gzip can become a megabyte, so decompressed bytes count as if they had been sent.
// An ordinary request has some hundred bytes and is decompressed at once. Larger messages need a
// token, and yield after each chunk. So they take at most the memory of the largest message per
// CPU, and no more CPU time than uncompressed input of the same size.

// gzipEncoding is the supported message encoding.
const gzipEncoding = "gzip"

const (
	// smallMessageBytes is how many bytes, input and output together, need no token: twice the
	// initial window of a stream.
	smallMessageBytes = 8 << 10
	// chunkBytes is how many bytes, input and output together, are processed before yielding: the
	// size of a read buffer.
	chunkBytes = 32 << 10
)

var (
	errNeedsToken       = errors.New("decompressing the message needs a token")
	errInflatedTooLarge = errors.New("the decompressed message is too large")
)

// inflater decompresses one message at a time.
type inflater struct {
	message    bytes.Reader
	gzip       gzip.Reader
	out        []byte              // the decompressed bytes, valid until release
	chunkLeft  int                 // bytes left in this chunk, input and output
	afterChunk func(allocated int) // called after each chunk; nil: only one chunk is allowed
}

// Small messages need small buffers, and there may be many of them at once.
var (
	smallInflaters = sync.Pool{New: func() any { return new(inflater) }}
	largeInflaters = sync.Pool{New: func() any { return new(inflater) }}
)

// inflateSmall decompresses a message to at most limit bytes. The error is errNeedsToken if it is
// not small. The caller must release the inflater.
func inflateSmall(message []byte, limit int) (*inflater, error) {
	if len(message) > smallMessageBytes {
		return nil, errNeedsToken
	}
	z, _ := smallInflaters.Get().(*inflater)
	return z.inflate(message, limit, smallMessageBytes)
}

// inflateLarge is like inflateSmall, for a caller that has a token. After each chunk it calls
// afterChunk with the number of bytes it has allocated.
func inflateLarge(message []byte, limit int, afterChunk func(allocated int)) (*inflater, error) {
	z, _ := largeInflaters.Get().(*inflater)
	z.afterChunk = afterChunk
	return z.inflate(message, limit, chunkBytes)
}

// release returns the inflater to its pool. Its output is no longer valid.
func (z *inflater) release() {
	pool := &smallInflaters
	if z.afterChunk != nil {
		pool, z.afterChunk = &largeInflaters, nil
	}
	z.message.Reset(nil)
	pool.Put(z)
}

func (z *inflater) inflate(message []byte, limit, left int) (*inflater, error) {
	z.message.Reset(message)
	z.out, z.chunkLeft = z.out[:0], left
	err := z.gzip.Reset(z)
	if err == io.EOF { //nolint:errorlint // gzip returns it as it is
		err = io.ErrUnexpectedEOF // the gzip header is missing
	}
	for err == nil && len(z.out) <= limit {
		z.grow(limit + 1)
		n, failed := z.gzip.Read(z.out[len(z.out):min(cap(z.out), len(z.out)+chunkBytes, limit+1)])
		z.out, err = z.out[:len(z.out)+n], failed
		if stop := z.consume(n); stop != nil {
			err = stop
		}
	}
	switch {
	case len(z.out) > limit:
		err = errInflatedTooLarge
	case err == io.EOF: //nolint:errorlint // as above
		return z, nil
	}
	z.release()
	return nil, err
}

// grow enlarges the buffer, up to limit bytes.
func (z *inflater) grow(limit int) {
	if len(z.out) < cap(z.out) {
		return
	}
	out := make([]byte, len(z.out), min(max(2*cap(z.out), smallMessageBytes), limit))
	copy(out, z.out)
	z.out = out
}

// consume counts n bytes of input or output.
func (z *inflater) consume(n int) error {
	if z.chunkLeft -= n; z.chunkLeft > 0 {
		return nil
	}
	if z.afterChunk == nil {
		return errNeedsToken
	}
	z.chunkLeft = chunkBytes
	z.afterChunk(cap(z.out))
	return nil
}

func (z *inflater) Read(p []byte) (n int, err error) {
	n, err = z.message.Read(p)
	if stop := z.consume(n); stop != nil {
		err = stop
	}
	return n, err
}

func (z *inflater) ReadByte() (byte, error) {
	if err := z.consume(1); err != nil {
		return 0, err
	}
	return z.message.ReadByte()
}

// yield lets other goroutines run, including those that wait for the network. It has to sleep for
// that: after runtime.Gosched, the goroutine would run again before the scheduler polls the
// network, and a client that floods its connection would delay all others by 10 ms.
func yield() { time.Sleep(time.Microsecond) }
