package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns what all threads of a process have used, those that have ended too. The
// kernel has a clock for that, with the process in its number (clock_getcpuclockid).
// /proc counts in steps of 10 ms, which is a thousand requests.
func cpuTime(pid int) (time.Duration, error) {
	const ofScheduler = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|ofScheduler), &t); err != nil {
		return 0, fmt.Errorf("read the clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
