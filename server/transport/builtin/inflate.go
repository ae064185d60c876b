package builtin

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"sync"
	"time"
)

// A kilobyte of gzip may be a megabyte, so what is inflated counts like what is sent. An ordinary request has
// some hundred bytes and is inflated at once. All others need a ticket, of which there are as many as
// processors, and let other goroutines run after each part. So they take no more memory than tickets times
// the largest message, and no more of a processor than bytes that were sent.

// gzipEncoding is the encoding that messages may have.
const gzipEncoding = "gzip"

const (
	// freelyInflated is how many bytes, in and out, need no ticket: twice a stream's first window.
	freelyInflated = 8 << 10
	// inflatedAtOnce is how many bytes, in and out, make a part: as many as a read takes at once.
	inflatedAtOnce = 32 << 10
)

var (
	// errNotSmall says that a message may only be inflated with a ticket.
	errNotSmall = errors.New("the message needs a ticket")
	// errInflatedTooLarge says that a message is larger than it may be.
	errInflatedTooLarge = errors.New("the message is too large after decompression")
)

// inflater decompresses one message at a time.
type inflater struct {
	message bytes.Reader
	gzip    gzip.Reader
	out     []byte         // what came of it, until release
	left    int            // bytes, in and out, until the end of the part
	parted  func(held int) // is called after each part; nil: there may be no second one
}

// Those that inflate freely have small buffers, and there may be many. Those with a ticket have large ones.
var (
	smallInflaters = sync.Pool{New: func() any { return new(inflater) }}
	largeInflaters = sync.Pool{New: func() any { return new(inflater) }}
)

// inflateFreely decompresses a message to at most so many bytes. The error is errNotSmall if that needs a
// ticket. The caller releases what is not nil.
func inflateFreely(message []byte, most int) (*inflater, error) {
	if len(message) > freelyInflated {
		return nil, errNotSmall
	}
	z, _ := smallInflaters.Get().(*inflater)
	return z.inflate(message, most, freelyInflated)
}

// inflateLarge does the same for a caller that has a ticket. After each part it calls parted with the bytes
// that it holds.
func inflateLarge(message []byte, most int, parted func(held int)) (*inflater, error) {
	z, _ := largeInflaters.Get().(*inflater)
	z.parted = parted
	return z.inflate(message, most, inflatedAtOnce)
}

// release lets another message be inflated. What came of the last one is no longer valid.
func (z *inflater) release() {
	pool := &smallInflaters
	if z.parted != nil {
		pool, z.parted = &largeInflaters, nil
	}
	z.message.Reset(nil)
	pool.Put(z)
}

func (z *inflater) inflate(message []byte, most, left int) (*inflater, error) {
	z.message.Reset(message)
	z.out, z.left = z.out[:0], left
	err := z.gzip.Reset(z)
	if err == io.EOF { //nolint:errorlint // gzip returns it as it is
		err = io.ErrUnexpectedEOF // there is not even a beginning
	}
	for err == nil && len(z.out) <= most {
		z.grow(most + 1)
		n, failed := z.gzip.Read(z.out[len(z.out):min(cap(z.out), len(z.out)+inflatedAtOnce, most+1)])
		z.out, err = z.out[:len(z.out)+n], failed
		if spent := z.spend(n); spent != nil {
			err = spent
		}
	}
	switch {
	case len(z.out) > most:
		err = errInflatedTooLarge
	case err == io.EOF: //nolint:errorlint // likewise
		return z, nil
	}
	z.release()
	return nil, err
}

// grow makes room for more, but not beyond most bytes.
func (z *inflater) grow(most int) {
	if len(z.out) < cap(z.out) {
		return
	}
	out := make([]byte, len(z.out), min(max(2*cap(z.out), freelyInflated), most))
	copy(out, z.out)
	z.out = out
}

// spend counts n bytes, in or out.
func (z *inflater) spend(n int) error {
	if z.left -= n; z.left > 0 {
		return nil
	}
	if z.parted == nil {
		return errNotSmall
	}
	z.left = inflatedAtOnce
	z.parted(cap(z.out))
	return nil
}

func (z *inflater) Read(p []byte) (n int, err error) {
	n, err = z.message.Read(p)
	if spent := z.spend(n); spent != nil {
		err = spent
	}
	return n, err
}

func (z *inflater) ReadByte() (byte, error) {
	if err := z.spend(1); err != nil {
		return 0, err
	}
	return z.message.ReadByte()
}

// park lets other goroutines run, those included for which the network has something. It takes a
// sleep for that: what yields is run again before the scheduler looks at the network, and a client
// that floods its connection would make all others wait for 10 ms. It costs a greedy client nothing.
func park() { time.Sleep(time.Microsecond) }
