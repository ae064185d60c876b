package server

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"
)

// Bounds on the memory for bodies of /json requests in flight, in bytes: in total and per client
// address. The first freeBody bytes of a body, enough for most requests, are not counted.
const (
	freeBody           = 4 << 10
	maxBodies          = 16 << 20
	maxBodiesOfAddress = 4 << 20
)

var errTooManyBodies = errors.New("too many large requests are in flight")

// bodyBudget bounds the memory of large request bodies. The zero value is ready.
type bodyBudget struct {
	mu        sync.Mutex
	total     int
	byAddress map[netip.Addr]int
}

// body is the body of a request in flight.
type body struct {
	bytes   []byte
	budget  *bodyBudget
	address netip.Addr
	counted int // number of bytes that count against the budget
}

// open returns the unread body of r. The caller must close it after the response.
func (b *bodyBudget) open(r *http.Request) *body {
	return &body{bytes: make([]byte, 0, freeBody), budget: b, address: clientAddress(r)}
}

// read reads in to its end. The caller bounds in to maxBytes bytes.
func (b *body) read(in io.Reader, maxBytes int) error {
	for {
		if len(b.bytes) == cap(b.bytes) {
			if err := b.grow(min(2*cap(b.bytes), maxBytes+1)); err != nil {
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

// grow increases the capacity to size bytes, if the budget allows it.
func (b *body) grow(size int) error {
	growth := size - freeBody - b.counted
	b.budget.mu.Lock()
	defer b.budget.mu.Unlock()
	if b.budget.total+growth > maxBodies || b.budget.byAddress[b.address]+growth > maxBodiesOfAddress {
		return errTooManyBodies
	}
	b.budget.countLocked(b.address, growth)
	b.counted += growth
	b.bytes = append(make([]byte, 0, size), b.bytes...)
	return nil
}

func (b *bodyBudget) countLocked(address netip.Addr, n int) {
	if b.byAddress == nil {
		b.byAddress = map[netip.Addr]int{}
	}
	b.total += n
	if b.byAddress[address] += n; b.byAddress[address] == 0 {
		delete(b.byAddress, address)
	}
}

// close releases the budget of the body.
func (b *body) close() {
	b.budget.mu.Lock()
	defer b.budget.mu.Unlock()
	b.budget.countLocked(b.address, -b.counted)
	b.counted = 0
}
