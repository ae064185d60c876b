//go:build unix

package process

import (
	"math"
	"syscall"
)

// openFiles returns how many files the process may open. Go has raised it to what
// the system allows at most.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64 // no limit that we know
	}
	return uint64(limit.Cur) //nolint:unconvert // signed on some systems
}
