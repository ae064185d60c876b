package transport

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Places are for the streams that may be open at once. Each method has its own, so that the clients of
// one service leave those of others theirs. The zero value has all places free.
type Places struct {
	mu    sync.Mutex
	taken map[string]int // by method
}

// Take takes one of a method's places, of which there are most. Leave gives it back.
func (p *Places) Take(method string, most int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[method] >= most {
		return status.Errorf(codes.ResourceExhausted, "%s is in use: at most %d streams at once", method, most)
	}
	if p.taken == nil {
		p.taken = make(map[string]int)
	}
	p.taken[method]++
	return nil
}

// Leave gives a place back.
func (p *Places) Leave(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[method]--
}
