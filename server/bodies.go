package server

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"
)

// Bounds on the bodies of requests to /json that are being read or answered, in bytes: of all clients, and of one client
// address. The first part of each body is free, and enough for most requests.
const (
	freeBody           = 4 << 10
	maxBodies          = 16 << 20
	maxBodiesOfAddress = 4 << 20
)

var errBodies = errors.New("too many large requests are in flight")

// bodies bounds the memory of large request bodies. The zero value has none.
type bodies struct {
	mu        sync.Mutex
	all       int
	byAddress map[netip.Addr]int
}

// body is a body that is being read or answered.
type body struct {
	bytes   []byte
	from    *bodies
	address netip.Addr
	held    int // number of bytes that are counted
}

// open returns the body of r, which is not read yet. The caller must close it after the response.
func (b *bodies) open(r *http.Request) *body {
	return &body{bytes: make([]byte, 0, freeBody), from: b, address: clientAddress(r)}
}

// read reads all of in, but no more than most bytes.
func (b *body) read(in io.Reader, most int) error {
	for {
		if len(b.bytes) == cap(b.bytes) {
			if err := b.grow(min(2*cap(b.bytes), most+1)); err != nil {
				return err
			}
		}
		n, err := in.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// grow makes room for size bytes, if the bounds allow that.
func (b *body) grow(size int) error {
	more := size - freeBody - b.held
	b.from.mu.Lock()
	defer b.from.mu.Unlock()
	if b.from.all+more > maxBodies || b.from.byAddress[b.address]+more > maxBodiesOfAddress {
		return errBodies
	}
	b.from.countLocked(b.address, more)
	b.held += more
	b.bytes = append(make([]byte, 0, size), b.bytes...)
	return nil
}

func (b *bodies) countLocked(address netip.Addr, n int) {
	if b.byAddress == nil {
		b.byAddress = map[netip.Addr]int{}
	}
	b.all += n
	if b.byAddress[address] += n; b.byAddress[address] == 0 {
		delete(b.byAddress, address)
	}
}

// close stops counting the body.
func (b *body) close() {
	b.from.mu.Lock()
	defer b.from.mu.Unlock()
	b.from.countLocked(b.address, -b.held)
	b.held = 0
}
