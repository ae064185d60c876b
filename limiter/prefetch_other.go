//go:build !amd64 && !arm64

package limiter

import "sync/atomic"

// prefetch does nothing: prefetching needs assembly.
func prefetch(*atomic.Uint64) {}
