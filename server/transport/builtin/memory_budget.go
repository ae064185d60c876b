package builtin

import (
	"sync"
	"sync/atomic"
)

// maxBuffered limits the bytes of incomplete requests, pending replies and the quota service, on
// all connections.
const maxBuffered = 96 << 20

// memoryBudget counts the bytes that all connections buffer. Beyond the limit, the connections that
// buffer the most are closed. No call fails for lack of memory, because Envoy would let its request
// pass.
type memoryBudget struct {
	bytes    atomic.Int64
	reserved func() int64 // bytes of maxBuffered that the quota service uses
	shares   func() []*memoryShare
	shedding sync.Mutex
}

// memoryShare counts the bytes that one connection buffers.
type memoryShare struct {
	bytes          atomic.Int64
	closeWithError func(why error)
}

// set updates the bytes of a connection.
func (b *memoryBudget) set(s *memoryShare, bytes int64) {
	grown := bytes - s.bytes.Swap(bytes)
	if grown == 0 || b.bytes.Add(grown) <= maxBuffered-b.reserved() || grown < 0 {
		return
	}
	b.shed()
}

// shed closes connections until the others are within the limit.
func (b *memoryBudget) shed() {
	if b.bytes.Load() <= maxBuffered-b.reserved() {
		return
	}
	// A concurrent call must see the bytes that this one frees. Otherwise it would close one
	// connection too many.
	b.shedding.Lock()
	defer b.shedding.Unlock()
	for b.bytes.Load() > maxBuffered-b.reserved() {
		var largest *memoryShare
		for _, s := range b.shares() {
			if largest == nil || s.bytes.Load() > largest.bytes.Load() {
				largest = s
			}
		}
		if largest == nil {
			return
		}
		b.bytes.Add(-largest.bytes.Swap(0))
		largest.closeWithError(errMemory)
	}
}
