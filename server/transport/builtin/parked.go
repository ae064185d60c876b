package builtin

import (
	"sync"
	"sync/atomic"
)

// mostParked is how many bytes unfinished requests and the quota service may hold in all.
const mostParked = 96 << 20

// parked counts the bytes that all connections hold of what is on its way. If they are more than they may be,
// the connections that hold the most are closed. No call is answered with an error for it: Envoy would let
// it pass.
type parked struct {
	bytes    atomic.Int64
	reserved func() int64 // bytes of mostParked that the quota service holds
	all      func() []*share
	shedding sync.Mutex
}

// share is what one connection holds.
type share struct {
	bytes atomic.Int64
	end   func(why error) // closes the connection
}

// set says how many bytes a connection holds.
func (p *parked) set(s *share, bytes int64) {
	grown := bytes - s.bytes.Swap(bytes)
	if grown == 0 || p.bytes.Add(grown) <= mostParked-p.reserved() || grown < 0 {
		return
	}
	p.shed()
}

// shed closes connections until the others hold no more than they may.
func (p *parked) shed() {
	if p.bytes.Load() <= mostParked-p.reserved() {
		return
	}
	// Of two goroutines, the second must see what the first has freed. Otherwise it would close
	// one connection more than is needed.
	p.shedding.Lock()
	defer p.shedding.Unlock()
	for p.bytes.Load() > mostParked-p.reserved() {
		var worst *share
		for _, s := range p.all() {
			if worst == nil || s.bytes.Load() > worst.bytes.Load() {
				worst = s
			}
		}
		if worst == nil {
			return
		}
		p.bytes.Add(-worst.bytes.Swap(0))
		worst.end(errHoldsMost)
	}
}
