//go:build amd64 || arm64

package limiter

import "sync/atomic"

// prefetch begins to fetch the cache line of a word, for reading: one that is only
// read, as by a denial, stays with all processors. It cannot fault.
//
//go:noescape
func prefetch(word *atomic.Uint64)
