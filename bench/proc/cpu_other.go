//go:build !linux

package proc

import (
	"errors"
	"time"
)

func cpuTime(int) (time.Duration, error) {
	return 0, errors.New("the time that a process used can be read on Linux alone")
}
