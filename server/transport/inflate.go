package transport

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

// Gzip is the encoding that messages may have.
const Gzip = "gzip"

const (
	// freelyInflated is how many bytes, in and out, need no ticket: twice a stream's first window.
	freelyInflated = 8 << 10
	// inflatedAtOnce is how many bytes, in and out, make a part: as many as a read takes at once.
	inflatedAtOnce = 32 << 10
)

var (
	// ErrNotSmall says that a message may only be inflated with a ticket.
	ErrNotSmall = errors.New("the message needs a ticket")
	// ErrInflatedTooLarge says that a message is larger than it may be.
	ErrInflatedTooLarge = errors.New("the message is too large after decompression")
)

// Inflater decompresses one message at a time.
type Inflater struct {
	message bytes.Reader
	gzip    gzip.Reader
	Out     []byte         // what came of it, until Release
	left    int            // bytes, in and out, until the end of the part
	parted  func(held int) // is called after each part; nil: there may be no second one
}

// Those that inflate freely have small buffers, and there may be many. Those with a ticket have large ones.
var (
	smallInflaters = sync.Pool{New: func() any { return new(Inflater) }}
	largeInflaters = sync.Pool{New: func() any { return new(Inflater) }}
)

// InflateFreely decompresses a message to at most so many bytes. The error is ErrNotSmall if that needs a
// ticket. The caller releases what is not nil.
func InflateFreely(message []byte, most int) (*Inflater, error) {
	if len(message) > freelyInflated {
		return nil, ErrNotSmall
	}
	z, _ := smallInflaters.Get().(*Inflater)
	return z.inflate(message, most, freelyInflated)
}

// InflateLarge does the same for a caller that has a ticket. After each part it calls parted with the bytes
// that it holds.
func InflateLarge(message []byte, most int, parted func(held int)) (*Inflater, error) {
	z, _ := largeInflaters.Get().(*Inflater)
	z.parted = parted
	return z.inflate(message, most, inflatedAtOnce)
}

// Release lets another message be inflated. What came of the last one is no longer valid.
func (z *Inflater) Release() {
	pool := &smallInflaters
	if z.parted != nil {
		pool, z.parted = &largeInflaters, nil
	}
	z.message.Reset(nil)
	pool.Put(z)
}

func (z *Inflater) inflate(message []byte, most, left int) (*Inflater, error) {
	z.message.Reset(message)
	z.Out, z.left = z.Out[:0], left
	err := z.gzip.Reset(z)
	if err == io.EOF { //nolint:errorlint // gzip returns it as it is
		err = io.ErrUnexpectedEOF // there is not even a beginning
	}
	for err == nil && len(z.Out) <= most {
		z.grow(most + 1)
		n, failed := z.gzip.Read(z.Out[len(z.Out):min(cap(z.Out), len(z.Out)+inflatedAtOnce, most+1)])
		z.Out, err = z.Out[:len(z.Out)+n], failed
		if spent := z.spend(n); spent != nil {
			err = spent
		}
	}
	switch {
	case len(z.Out) > most:
		err = ErrInflatedTooLarge
	case err == io.EOF: //nolint:errorlint // likewise
		return z, nil
	}
	z.Release()
	return nil, err
}

// grow makes room for more, but not beyond most bytes.
func (z *Inflater) grow(most int) {
	if len(z.Out) < cap(z.Out) {
		return
	}
	out := make([]byte, len(z.Out), min(max(2*cap(z.Out), freelyInflated), most))
	copy(out, z.Out)
	z.Out = out
}

// spend counts n bytes, in or out.
func (z *Inflater) spend(n int) error {
	if z.left -= n; z.left > 0 {
		return nil
	}
	if z.parted == nil {
		return ErrNotSmall
	}
	z.left = inflatedAtOnce
	z.parted(cap(z.Out))
	return nil
}

// Read implements [io.Reader], for the decompressor.
func (z *Inflater) Read(p []byte) (n int, err error) {
	n, err = z.message.Read(p)
	if spent := z.spend(n); spent != nil {
		err = spent
	}
	return n, err
}

// ReadByte implements [io.ByteReader], for the decompressor.
func (z *Inflater) ReadByte() (byte, error) {
	if err := z.spend(1); err != nil {
		return 0, err
	}
	return z.message.ReadByte()
}

// Park lets other goroutines run, those included for which the network has something. It takes a
// sleep for that: what yields is run again before the scheduler looks at the network, and a client
// that floods its connection would make all others wait for 10 ms. It costs a greedy client nothing.
func Park() { time.Sleep(time.Microsecond) }
