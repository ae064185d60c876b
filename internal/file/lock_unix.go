//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package file

import (
	"os"
	"os/signal"
	"syscall"
)

// Lock locks the file, creating it if necessary, until unlock is called or the process ends. It
// returns ErrLocked if another process has locked it.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if err == syscall.EWOULDBLOCK {
			return nil, ErrLocked
		}
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() { _ = f.Close() }, nil
}

// IgnoreSizeSignal ignores SIGXFSZ, so that a write beyond the file size limit returns an error
// instead of terminating the process.
func IgnoreSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
