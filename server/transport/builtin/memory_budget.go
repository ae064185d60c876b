package builtin

import (
	"sync"
	"sync/atomic"
)

// maxBuffered is how many bytes unfinished requests and the quota service may hold in all.
const maxBuffered = 96 << 20

// memoryBudget counts the bytes that all connections hold of what is on its way. If they are more than they may be,
// the connections that hold the most are closed. No call is answered with an error for it: Envoy would let
// it pass.
type memoryBudget struct {
	bytes    atomic.Int64
	reserved func() int64 // bytes of mostParked that the quota service holds
	shares   func() []*memoryShare
	shedding sync.Mutex
}

// memoryShare is what one connection holds.
type memoryShare struct {
	bytes          atomic.Int64
	closeWithError func(why error) // closes the connection
}

// set says how many bytes a connection holds.
func (p *memoryBudget) set(s *memoryShare, bytes int64) {
	grown := bytes - s.bytes.Swap(bytes)
	if grown == 0 || p.bytes.Add(grown) <= maxBuffered-p.reserved() || grown < 0 {
		return
	}
	p.shed()
}

// shed closes connections until the others hold no more than they may.
func (p *memoryBudget) shed() {
	if p.bytes.Load() <= maxBuffered-p.reserved() {
		return
	}
	// Of two goroutines, the second must see what the first has freed. Otherwise it would close
	// one connection more than is needed.
	p.shedding.Lock()
	defer p.shedding.Unlock()
	for p.bytes.Load() > maxBuffered-p.reserved() {
		var worst *memoryShare
		for _, s := range p.shares() {
			if worst == nil || s.bytes.Load() > worst.bytes.Load() {
				worst = s
			}
		}
		if worst == nil {
			return
		}
		p.bytes.Add(-worst.bytes.Swap(0))
		worst.closeWithError(errMemory)
	}
}
