//go:build unix

package builtin

import (
	"io"
	"syscall"
)

const canTry = true

// tryRead reads without blocking. It returns 0 and no error if there is nothing to read.
func tryRead(fd uintptr, p []byte) (n int, err error) {
	for {
		n, err := syscall.Read(int(fd), p)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return 0, nil
		case err == nil && n == 0:
			return 0, io.EOF
		}
		return max(n, 0), err
	}
}

// tryWrite writes as much as it can without blocking.
func tryWrite(fd uintptr, p []byte) (n int, err error) {
	for n < len(p) {
		more, err := syscall.Write(int(fd), p[n:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return n, nil
		case err != nil:
			return n, err
		}
		n += more
	}
	return n, nil
}
