//go:build unix

package process

import (
	"math"
	"syscall"
)

// openFiles returns the limit on open files, which the Go runtime has raised to the hard limit.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64 // unknown
	}
	return uint64(limit.Cur) //nolint:unconvert // signed on some systems
}
