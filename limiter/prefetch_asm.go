//go:build amd64 || arm64

package limiter

import "sync/atomic"

// prefetch loads the cache line of a word for reading, in shared state: a line that is only read,
// as by a denial, can stay in the caches of all processors. It cannot fault.
//
//go:noescape
func prefetch(word *atomic.Uint64)
