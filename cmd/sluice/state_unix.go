//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// lockFile makes this process the only one that has the file locked, until it ends, however it
// ends. It returns errLocked if another one has.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if err == syscall.EWOULDBLOCK {
			return nil, errLocked
		}
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() { _ = f.Close() }, nil
}

// ignoreFileSizeSignal makes a file that grows beyond what the process may write an error. Otherwise
// it ends the process.
func ignoreFileSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
