//go:build limiterhooks

package builtin

import (
	"fmt"
	"sync/atomic"
)

// ownership records the owner of a call, and panics if a goroutine transfers a call that it does
// not own.
type ownership struct{ owner atomic.Uint32 }

func (o *ownership) transfer(from, to owner) {
	if !o.owner.CompareAndSwap(uint32(from), uint32(to)) {
		panic(fmt.Sprintf("a call is passed from owner %d to %d, but its owner is %d", from, to, o.owner.Load())) //nolint:forbidigo // a test must fail
	}
}

// poison overwrites the fields that the next use must set.
func (x *rateLimitCall) poison() {
	x.Stream, x.start, x.duration = 0xdbdbdbdb, -1, -1
	for _, memory := range [][]byte{x.Request, x.Reply()} {
		memory = memory[:cap(memory)]
		for i := range memory {
			memory[i] = 0xdb
		}
	}
}
