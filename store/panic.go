package store

import (
	"errors"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// errPanicked is the answer to a request in which something panicked that the fallback could not
// answer either.
var errPanicked = &failure{Reply, errors.New("internal error")}

// guard reports whether do returns. If it panics, which is a bug of ours, that is counted, and the
// goroutine, which others wait for, goes on.
func (o *Options) guard(do func()) (returned bool) {
	defer func() {
		if thrown := recover(); thrown != nil && o.Panicked != nil {
			o.Panicked(thrown)
		}
	}()
	do()
	return true
}

// tell tells w.
func (o *Options) tell(w limiter.Waiter, err error) { o.guard(func() { w.Decided(err) }) }
