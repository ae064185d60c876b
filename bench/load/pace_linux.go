package load

import (
	"syscall"
	"time"
)

// wakeOnTime makes the kernel end this thread's sleeps on time rather than up to 50 µs later. It
// only improves accuracy, so errors are ignored.
func wakeOnTime() {
	const prSetTimerSlack = 29
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, 1, 0)
}

// sleep sleeps in the kernel, because a Go timer may be a millisecond late in an idle process. A
// signal may end it some microseconds early.
func sleep(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}
