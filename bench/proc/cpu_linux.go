package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of all threads of a process, including those that have ended. The
// kernel has a clock for it, whose ID contains the process ID (clock_getcpuclockid). /proc has a
// resolution of 10 ms, which is a thousand requests.
func cpuTime(pid int) (time.Duration, error) {
	const ofScheduler = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|ofScheduler), &t); err != nil {
		return 0, fmt.Errorf("read the clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
