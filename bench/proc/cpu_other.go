//go:build !linux

package proc

import (
	"errors"
	"time"
)

func cpuTime(int) (time.Duration, error) {
	return 0, errors.New("the CPU time of a process can be read only on Linux")
}
