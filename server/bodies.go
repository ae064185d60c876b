package server

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Bounds on the memory for requests to /json in flight, in bytes: in total and per client address. The
// first freeBody bytes of a body, and requests with up to freeDescriptors descriptors, are not
// counted; that is enough for most requests.
const (
	freeBody           = 4 << 10
	freeDescriptors    = 4
	maxBodies          = 8 << 20
	maxBodiesOfAddress = 2 << 20
)

var errTooManyBodies = errors.New("too many large requests are in flight")

// bodyBudget bounds the memory of large request bodies. The zero value is ready.
type bodyBudget struct {
	mu sync.Mutex
	// total has at most maxBodiesOfAddress of an address, so that one cannot exclude others: small
	// requests that wait are counted without a bound.
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
	if !b.tryCount(size - freeBody) {
		return errTooManyBodies
	}
	b.bytes = append(make([]byte, 0, size), b.bytes...)
	return nil
}

// decode returns the request in the body, encoded as protobuf. It releases the body.
func (b *body) decode() ([]byte, error) {
	var request rls.RateLimitRequest
	if err := protojson.Unmarshal(b.bytes, &request); err != nil {
		return nil, err
	}
	if len(request.GetDescriptors()) > freeDescriptors && !b.tryCount(b.counted) {
		return nil, errTooManyBodies
	}
	b.bytes = nil
	b.count(0)
	return proto.Marshal(&request)
}

// count replaces the number of counted bytes.
func (b *body) count(bytes int) {
	b.budget.mu.Lock()
	defer b.budget.mu.Unlock()
	b.countLocked(bytes)
}

// tryCount is count, if the bounds allow it. It reports whether they do.
func (b *body) tryCount(bytes int) bool {
	b.budget.mu.Lock()
	defer b.budget.mu.Unlock()
	more := bytes - b.counted
	if b.budget.total+more > maxBodies || b.budget.byAddress[b.address]+more > maxBodiesOfAddress {
		return false
	}
	b.countLocked(bytes)
	return true
}

func (b *body) countLocked(bytes int) {
	u := b.budget
	if u.byAddress == nil {
		u.byAddress = map[netip.Addr]int{}
	}
	before := u.byAddress[b.address]
	now := before + bytes - b.counted
	u.total += min(now, maxBodiesOfAddress) - min(before, maxBodiesOfAddress)
	u.byAddress[b.address] = now
	if now == 0 {
		delete(u.byAddress, b.address)
	}
	b.counted = bytes
}

// close releases the budget of the body.
func (b *body) close() { b.count(0) }
