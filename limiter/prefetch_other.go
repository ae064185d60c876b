//go:build !amd64 && !arm64

package limiter

import "sync/atomic"

// prefetch does nothing: Go has no word for it but in assembly.
func prefetch(*atomic.Uint64) {}
