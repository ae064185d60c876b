package load

import (
	"syscall"
	"time"
)

// wakeOnTime asks the kernel to end this thread's sleeps when they are over
// rather than up to 50 µs later. It only adds accuracy, so failure is ignored.
func wakeOnTime() {
	const prSetTimerSlack = 29
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, 1, 0)
}

// sleep sleeps in the kernel, because a timer of Go may be a millisecond late in an idle
// process. A signal may end it some microseconds early.
func sleep(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}
